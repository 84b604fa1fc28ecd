#include <CLI/CLI.hpp>
#include <memory>

#include "cli/grammar.h"
#include "cli/local_store.h"

namespace space::cli {
namespace {

using Command = int (*)(Console&, const StoreOptions&);

// One that works on the store of this machine, with its --data-dir.
CLI::App* add_local(CLI::App& group, CommandLine& line, const char* verb, const char* what, std::shared_ptr<StoreOptions> options,
                    Command command) {
  CLI::App* one = group.add_subcommand(verb, what);
  one->add_option("--data-dir", options->data_dir, "Data folder of the server")->capture_default_str();
  one->callback([options, command, &line] {
    line.chosen = [options, command, &line] {
      Console console(line.client.json);
      return command(console, *options);
    };
  });
  return one;
}

}  // namespace

void add_store_commands(CLI::App& app, CommandLine& line) {
  auto gc = std::make_shared<StoreOptions>();
  add_local(app, line, "gc", "Remove stored bytes that no checkpoint needs; as root, with the server stopped", gc, collect_store)
      ->group("Server")
      ->add_flag("--dry-run", gc->dry_run, "Only list them; the server may run");

  CLI::App* store = app.add_subcommand("store", "The store of checkpoints")->group("Server");
  store->require_subcommand(1);
  add_local(*store, line, "verify", "Check every checkpoint and every stored byte; as root, the server may run",
            std::make_shared<StoreOptions>(), verify_local_store);

  auto away = std::make_shared<StoreOptions>();
  add_local(app, line, "backup", "Copy every checkpoint into a folder, verified; as root, the server may run", away, backup_store)
      ->group("Server")
      ->add_option("folder", away->folder, "A new folder, or one that was backed up to before")
      ->required();
  auto back = std::make_shared<StoreOptions>();
  add_local(app, line, "restore-backup", "Bring the checkpoints of a backup back; as root, with the server stopped", back, restore_store)
      ->group("Server")
      ->add_option("folder", back->folder, "What `space backup` wrote")
      ->required();
}

}  // namespace space::cli
