#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/grammar.h"

namespace space::cli {
namespace {

struct Verb {
  const char* name;
  const char* help;
};

constexpr Verb kVerbs[] = {
    {"pause", "Stop the CPUs of sandboxes; memory stays"},
    {"resume", "Let paused sandboxes go on"},
    {"suspend", "Put sandboxes into storage, running programs and all, and free what they use"},
    {"wake", "Let sandboxes go on that are paused, suspended or stopped"},
    {"stop", "Keep the disks of sandboxes alone; their programs end"},
    {"start", "Boot sandboxes from their disks; what was in memory is given up"},
};

}  // namespace

void add_life_commands(CLI::App& app, CommandLine& line) {
  const char* group = "Sandboxes";
  for (const Verb& verb : kVerbs) {
    auto ids = std::make_shared<std::vector<std::string>>();
    CLI::App* command = app.add_subcommand(verb.name, verb.help)->group(group);
    command->add_option("sandbox", *ids, "Their ids")->required();
    command->callback(choose(line, [ids, name = std::string(verb.name)](Context& x) { return change_state(x, name, *ids); }));
  }

  const char* kept = "Checkpoints and forks";
  struct Options {
    std::string sandbox, checkpoint, name;
    std::vector<std::string> checkpoints;
  };
  auto c = std::make_shared<Options>();
  CLI::App* take =
      app.add_subcommand("checkpoint", "Keep a sandbox as it is now, while it goes on; prints the checkpoint's id")->group(kept);
  take->add_option("sandbox", c->sandbox, "Its id")->required();
  take->add_option("-n,--name", c->name, "A name, to know it again");
  take->callback(choose(line, [c](Context& x) { return checkpoint(x, c->sandbox, c->name); }));

  CLI::App* all = app.add_subcommand("checkpoints", "List checkpoints, or delete some")->group(kept);
  auto l = std::make_shared<Options>();
  CLI::App* ls = all->add_subcommand("ls", "List checkpoints");
  ls->add_option("sandbox", l->sandbox, "Only those of this sandbox");
  ls->callback(choose(line, [l](Context& x) { return list_checkpoints(x, l->sandbox); }));
  CLI::App* rm = all->add_subcommand("rm", "Delete checkpoints; what others need of them stays");
  rm->add_option("checkpoint", l->checkpoints, "Their ids")->required();
  rm->callback(choose(line, [l](Context& x) { return remove_checkpoints(x, l->checkpoints); }));
  all->require_subcommand(1);

  auto r = std::make_shared<RestoreOptions>();
  CLI::App* back =
      app.add_subcommand("restore", "Put a sandbox back to one of its checkpoints or snapshots, or one path out of it")->group(kept);
  back->add_option("sandbox", r->sandbox, "Its id")->required();
  back->add_option("checkpoint", r->checkpoint, "The checkpoint's or snapshot's id")->required();
  CLI::Option* path = back->add_option("--path", r->path, "Only this file or folder (absolute), into the running sandbox");
  back->add_option("--into", r->into, "The folder that it comes to lie in; the one it was in otherwise")->needs(path);
  back->callback(choose(line, [r](Context& x) { return restore(x, *r); }));

  auto f = std::make_shared<ForkOptions>();
  CLI::App* fork_ = app.add_subcommand("fork", "Make new sandboxes that go on where this one is; prints their ids")->group(kept);
  fork_->add_option("sandbox", f->sandbox, "Its id")->required();
  fork_->add_option("--from", f->checkpoint, "One of its checkpoints to start from; the sandbox as it is now otherwise");
  fork_->add_option("-n,--count", f->count, "How many")->capture_default_str()->check(CLI::Range(1, 64));
  fork_->add_option("-e,--env", f->env, "NAME=value for the new ones; may be repeated")->allow_extra_args(false);
  fork_->add_option("-m,--metadata", f->metadata, "key=value in place of the parent's; may be repeated")->allow_extra_args(false);
  fork_
      ->add_option("--egress", f->egress,
                   "What they may reach, in place of what the parent may: none, open, a file, or a preset; may be repeated")
      ->allow_extra_args(false);
  fork_->add_option("--ttl", f->time_limit_s, "End them after so many seconds, in place of the parent's limit");
  fork_->add_option("--idle-pause", f->idle_pause_s, "Pause them after so many seconds without use, in place of what the parent has");
  fork_->add_option("--idle-suspend", f->idle_suspend_s, "Suspend them after so many seconds without use, in place of what the parent has");
  fork_->add_option("--idle-cpu", f->idle_cpu_percent, "What they may compute while they are idle, in percent of a core")
      ->check(CLI::Range(1, 100));
  fork_->callback(choose(line, [f](Context& x) { return fork(x, *f); }));

  CLI::App* tree_ =
      app.add_subcommand("tree", "Show which sandboxes, checkpoints and snapshots came from which, and what each uses")->group(kept);
  tree_->callback(choose(line, [](Context& x) { return tree(x); }));
}

}  // namespace space::cli
