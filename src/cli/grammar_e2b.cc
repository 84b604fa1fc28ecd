#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/commands_volume.h"
#include "cli/grammar.h"

namespace space::cli {

namespace {

void add_volume_commands(CLI::App& app, CommandLine& line) {
  CLI::App* group = app.add_subcommand("volume", "Volumes, which E2B's clients mount in sandboxes")->group("Server");
  group->require_subcommand(1);
  auto name = std::make_shared<std::string>();
  CLI::App* make = group->add_subcommand("create", "Make a volume; prints its id");
  make->add_option("name", *name, "Letters, digits, dash and underscore")->required();
  make->callback(choose(line, [name](Context& c) { return create_volume(c, *name); }));
  group->add_subcommand("ls", "List volumes")->callback(choose(line, [](Context& c) { return list_volumes(c); }));
  auto which = std::make_shared<std::vector<std::string>>();
  CLI::App* rm = group->add_subcommand("rm", "Delete volumes with all that is in them; programs that use one get errors");
  rm->add_option("volume", *which, "Their names or ids")->required();
  rm->callback(choose(line, [which](Context& c) { return remove_volumes(c, *which); }));
}

}  // namespace

void add_e2b_commands(CLI::App& app, CommandLine& line) {
  add_volume_commands(app, line);
  CLI::App* group = app.add_subcommand("e2b", "For programs that use E2B's SDKs")->group("Server");
  group->require_subcommand(1);
  auto o = std::make_shared<E2bOptions>();
  CLI::App* env = group->add_subcommand("env", "Make a key and print the variables that lead E2B's SDKs here");
  env->add_option("--name", o->name, "A name to know the key by")->capture_default_str();
  env->add_flag("--templates", o->templates, "The key may build templates too: those are shared by all who use the server");
  env->add_option("--run-dir", o->run_dir, "The server's, when it is on this machine: says whether it serves a domain")
      ->capture_default_str();
  env->callback(choose(line, [o](Context& c) { return e2b_env(c, *o); }));
}

}  // namespace space::cli
