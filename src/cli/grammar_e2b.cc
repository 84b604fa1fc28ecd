#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/grammar.h"

namespace space::cli {

void add_e2b_commands(CLI::App& app, CommandLine& line) {
  CLI::App* group = app.add_subcommand("e2b", "For programs that use E2B's SDKs")->group("Server");
  group->require_subcommand(1);
  auto name = std::make_shared<std::string>("e2b");
  CLI::App* env = group->add_subcommand("env", "Make a key and print the variables that lead E2B's SDKs here");
  env->add_option("--name", *name, "A name to know the key by")->capture_default_str();
  env->callback(choose(line, [name](Context& c) { return e2b_env(c, *name); }));
}

}  // namespace space::cli
