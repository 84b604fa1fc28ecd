#include "cli/command_line.h"

#include <CLI/CLI.hpp>

#include "cli/exit_status.h"
#include "cli/grammar.h"
#include "cli/guest_command.h"

namespace space::cli {

int run_program(int argc, char** argv, const RunRole& run_role) {
  CLI::App app("SPACE gives an AI agent a computer of its own: a small virtual machine, driven over HTTP.", "space");
  CommandLine line;
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("-V,--version", std::string("space ") + SPACE_VERSION);
  app.footer(
      "Exit status: run, exec and shell end with the command's own; 125 is an error of SPACE, 64 a wrong command line.\n"
      "Every command has --help.");
  add_client_options(app, line);
  add_sandbox_commands(app, line);
  add_update_command(app, line);
  add_life_commands(app, line);
  add_snapshot_commands(app, line);
  add_process_commands(app, line);
  add_network_commands(app, line);
  add_admin_commands(app, line);
  add_store_commands(app, line);
  add_e2b_commands(app, line);
  add_server_commands(app, line, run_role);
  add_redteam_command(app, line);
  SplitLine split = split_guest_command(app, std::vector<std::string>(argv + 1, argv + argc));
  line.guest = std::move(split.guest);
  try {
    std::ranges::reverse(split.ours);  // CLI11 takes its words from the back
    app.parse(split.ours);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return line.chosen();
}

}  // namespace space::cli
