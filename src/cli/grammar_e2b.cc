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
  auto run_dir = std::make_shared<std::filesystem::path>("/run/space");
  env->add_option("--run-dir", *run_dir, "The server's, when it is on this machine: says whether it serves a domain")->capture_default_str();
  env->callback(choose(line, [name, run_dir](Context& c) { return e2b_env(c, *name, *run_dir); }));
}

}  // namespace space::cli
