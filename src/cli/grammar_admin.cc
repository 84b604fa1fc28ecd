#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/grammar.h"

namespace space::cli {
namespace {

using Text = std::shared_ptr<std::string>;

// A group of subcommands like "template ls", "template rm".
CLI::App* add_group(CLI::App& app, const char* name, const char* what) {
  CLI::App* group = app.add_subcommand(name, what)->group("Server");
  group->require_subcommand(1);
  return group;
}

void add_one(CLI::App& group, CommandLine& line, const char* verb, const char* what, const char* argument, Task<int> (*command)(Context&, std::string)) {
  Text value = std::make_shared<std::string>();
  CLI::App* one = group.add_subcommand(verb, what);
  one->add_option(argument, *value)->required();
  one->callback(choose(line, [value, command](Context& c) { return command(c, *value); }));
}

}  // namespace

void add_admin_commands(CLI::App& app, CommandLine& line) {
  CLI::App* templates = add_group(app, "template", "Templates on the server");
  templates->add_subcommand("ls", "List templates")->callback(choose(line, list_templates));
  add_one(*templates, line, "rm", "Remove a template's name; its content goes with the last name", "template", remove_template);

  CLI::App* operations = add_group(app, "ops", "Operations: what the server was asked to do");
  Text sandbox = std::make_shared<std::string>();
  CLI::App* ls = operations->add_subcommand("ls", "List operations");
  ls->add_option("--sandbox", *sandbox, "Only those of this sandbox");
  ls->callback(choose(line, [sandbox](Context& c) { return list_operations(c, *sandbox); }));
  add_one(*operations, line, "get", "Show one with the times of its steps", "operation", [](Context& c, std::string id) { return show_operation(c, id, false); });
  add_one(*operations, line, "wait", "Wait until it is over", "operation", [](Context& c, std::string id) { return show_operation(c, id, true); });
  add_one(*operations, line, "cancel", "Ask it to stop", "operation", cancel_operation);

  CLI::App* keys = add_group(app, "key", "API keys");
  Text name = std::make_shared<std::string>();
  CLI::App* make = keys->add_subcommand("create", "Make a key and print it, once");
  make->add_option("--name", *name, "A name to know it by");
  make->callback(choose(line, [name](Context& c) { return create_key(c, *name); }));
  keys->add_subcommand("list", "List keys")->callback(choose(line, list_keys));
  add_one(*keys, line, "revoke", "End a key, now", "key", revoke_key);

  Text after = std::make_shared<std::string>();
  CLI::App* events = app.add_subcommand("events", "Follow what happens to your sandboxes")->group("Server");
  events->add_option("--after", *after, "Begin behind this event id");
  events->callback(choose(line, [after](Context& c) { return follow_events(c, *after); }));

  app.add_subcommand("version", "Versions of this program and of the server")->group("Server")->callback(choose(line, show_version));

  Text kind = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "Print a completion script for your shell")->group("Server");
  completion->add_option("shell", *kind, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([kind, &app, &line] {
    line.chosen = [kind, &app] { return print_completion(app, *kind); };
  });
}

}  // namespace space::cli
