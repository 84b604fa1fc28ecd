#include "cli/command_line.h"

#include <CLI/CLI.hpp>

#include "cli/exit_status.h"
#include "cli/grammar.h"

namespace space::cli {

int run_program(int argc, char** argv) {
  CLI::App app("SPACE gives an AI agent a computer of its own: a small virtual machine, driven over HTTP.", "space");
  Chosen chosen;
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", std::string("space ") + SPACE_VERSION);
  add_server_commands(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return chosen();
}

}  // namespace space::cli
