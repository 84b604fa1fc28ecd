#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/grammar.h"
#include "cli/local_supply.h"
#include "cli/local_templates.h"

namespace space::cli {
namespace {

using Text = std::shared_ptr<std::string>;

// A group of subcommands like "template ls", "template rm".
CLI::App* add_group(CLI::App& app, const char* name, const char* what) {
  CLI::App* group = app.add_subcommand(name, what)->group("Server");
  group->require_subcommand(1);
  return group;
}

void add_one(CLI::App& group, CommandLine& line, const char* verb, const char* what, const char* argument,
             Task<int> (*command)(Context&, std::string)) {
  Text value = std::make_shared<std::string>();
  CLI::App* one = group.add_subcommand(verb, what);
  one->add_option(argument, *value)->required();
  one->callback(choose(line, [value, command](Context& c) { return command(c, *value); }));
}

void add_template_remove(CLI::App& group, CommandLine& line) {
  struct Options {
    std::string reference;
    bool local = false;
    std::filesystem::path data_dir = "/var/lib/space";
  };
  auto o = std::make_shared<Options>();
  CLI::App* remove = group.add_subcommand("rm", "Remove a template's name; its content goes with the last name");
  remove->add_option("template", o->reference)->required();
  remove->add_flag("--local", o->local, "In this machine's store, as root, without asking a server");
  remove->add_option("--data-dir", o->data_dir, "With --local: the data folder")->capture_default_str();
  remove->callback([o, &line, ask = choose(line, [o](Context& c) { return remove_template(c, o->reference); })] {
    if (!o->local) return ask();
    line.chosen = [o, &line] {
      Console console(line.client.json);
      return remove_local_template(console, o->data_dir, o->reference);
    };
  });
}

void add_key_commands(CLI::App& app, CommandLine& line) {
  CLI::App* keys = add_group(app, "key", "API keys");
  auto o = std::make_shared<KeyOptions>();
  CLI::App* make = keys->add_subcommand("create", "Make a key and print it, once");
  make->add_option("--name", o->name, "A name to know it by")->capture_default_str();
  make->add_option("--tenant", o->tenant, "Whose key; for those who keep the server");
  make->add_option("--scope", o->scopes, "What it may do, repeatable: read, run (the default), publish, admin")
      ->check(CLI::IsMember({"read", "run", "publish", "admin"}));
  make->add_option("--expires", o->expires_in_s, "After this time it is worth nothing: 90s, 30m, 12h, 30d")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}));
  make->callback(choose(line, [o](Context& c) { return create_key(c, *o); }));
  Text tenant = std::make_shared<std::string>();
  CLI::App* list = keys->add_subcommand("list", "List keys");
  list->add_option("--tenant", *tenant, "Whose keys; for those who keep the server");
  list->callback(choose(line, [tenant](Context& c) { return list_keys(c, *tenant); }));
  add_one(*keys, line, "revoke", "End a key, now", "key", revoke_key);
}

}  // namespace

void add_admin_commands(CLI::App& app, CommandLine& line) {
  CLI::App* templates = add_group(app, "template", "Templates: list, build, publish, sign, remove");
  templates->add_subcommand("ls", "List templates")->callback(choose(line, list_templates));
  add_template_remove(*templates, line);
  add_template_commands(*templates, line);
  add_supply_commands(*templates, line);

  CLI::App* operations = add_group(app, "ops", "Operations: what the server was asked to do");
  Text sandbox = std::make_shared<std::string>();
  CLI::App* ls = operations->add_subcommand("ls", "List operations");
  ls->add_option("--sandbox", *sandbox, "Only those of this sandbox");
  ls->callback(choose(line, [sandbox](Context& c) { return list_operations(c, *sandbox); }));
  add_one(*operations, line, "get", "Show one with the times of its steps", "operation",
          [](Context& c, std::string id) { return show_operation(c, id, false); });
  add_one(*operations, line, "wait", "Wait until it is over", "operation",
          [](Context& c, std::string id) { return show_operation(c, id, true); });
  add_one(*operations, line, "cancel", "Ask it to stop", "operation", cancel_operation);

  add_key_commands(app, line);

  Text after = std::make_shared<std::string>();
  CLI::App* events = app.add_subcommand("events", "Follow what happens to your sandboxes")->group("Server");
  events->add_option("--after", *after, "Begin behind this event id");
  events->callback(choose(line, [after](Context& c) { return follow_events(c, *after); }));

  CLI::App* version = app.add_subcommand("version", "Versions of this program and of the server")->group("Server");
  auto sbom = std::make_shared<bool>(false);
  version->add_flag("--sbom", *sbom, "What this program was built from: a bill of materials (CycloneDX 1.5)");
  version->callback([sbom, &line, ask = choose(line, show_version)] {
    if (!*sbom) return ask();
    line.chosen = [&line] {
      Console console(line.client.json);
      return print_program_sbom(console);
    };
  });

  Text kind = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "Print a completion script for your shell")->group("Server");
  completion->add_option("shell", *kind, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([kind, &app, &line] { line.chosen = [kind, &app] { return print_completion(app, *kind); }; });
}

}  // namespace space::cli
