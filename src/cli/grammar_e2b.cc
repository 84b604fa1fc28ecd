#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/grammar.h"

namespace space::cli {

void add_e2b_commands(CLI::App& app, CommandLine& line) {
  CLI::App* group = app.add_subcommand("e2b", "For programs that use E2B's SDKs")->group("Server");
  group->require_subcommand(1);
  auto o = std::make_shared<E2bOptions>();
  CLI::App* env = group->add_subcommand("env", "Make a key and print the variables that lead E2B's SDKs here");
  env->add_option("--name", o->name, "A name to know the key by")->capture_default_str();
  env->add_flag("--templates", o->templates, "The key may build templates too: those are shared by all who use the server");
  env->add_option("--run-dir", o->run_dir, "The server's, when it is on this machine: says whether it serves a domain")->capture_default_str();
  env->callback(choose(line, [o](Context& c) { return e2b_env(c, *o); }));
}

}  // namespace space::cli
