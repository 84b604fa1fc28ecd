#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/grammar.h"

namespace space::cli {

void add_snapshot_commands(CLI::App& app, CommandLine& line) {
  const char* group = "Checkpoints and forks";
  struct Options {
    std::string sandbox, name;
  };
  auto t = std::make_shared<Options>();
  CLI::App* take =
      app.add_subcommand("snapshot", "Keep a sandbox's disk as it is now, while it goes on; prints the snapshot's id")->group(group);
  take->add_option("sandbox", t->sandbox, "Its id")->required();
  take->add_option("-n,--name", t->name, "A name, to know it again");
  take->callback(choose(line, [t](Context& x) { return checkpoint(x, t->sandbox, t->name, "snapshot"); }));

  auto s = std::make_shared<SnapshotOptions>();
  CLI::App* often = app.add_subcommand("snapshots", "Show or say how often a sandbox's disk is kept by itself")->group(group);
  often->add_option("sandbox", s->sandbox, "Its id")->required();
  CLI::Option* every =
      often->add_option("--every", s->every_s, "Seconds between two snapshots of a disk that is written to; 0: none are taken")
          ->check(CLI::Range(0, 604'800));
  often->add_option("--keep", s->keep, "How many of them stay")->check(CLI::Range(1, 10'000))->needs(every);
  often->callback(choose(line, [s](Context& x) { return snapshots(x, *s); }));
}

}  // namespace space::cli
