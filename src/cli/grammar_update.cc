#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/grammar.h"

namespace space::cli {

void add_update_command(CLI::App& app, CommandLine& line) {
  auto o = std::make_shared<UpdateOptions>();
  CLI::App* update_ =
      app.add_subcommand("update", "Change settings of sandboxes: of running ones at once, of others when they wake")->group("Sandboxes");
  const CLI::Validator seconds(
      [](const std::string& text) {
        const bool good = text == "none" ||
                          (!text.empty() && text.size() < 9 && text.find_first_not_of("0123456789") == std::string::npos && text != "0");
        return good ? std::string() : "give seconds, or none";
      },
      "SECONDS|none");
  const CLI::Validator percent(
      [](const std::string& text) {
        const bool number = !text.empty() && text.size() < 4 && text.find_first_not_of("0123456789") == std::string::npos;
        const int value = number ? std::atoi(text.c_str()) : 0;
        return text == "none" || (value >= 1 && value <= 100) ? std::string() : "give percent from 1 to 100, or none";
      },
      "PERCENT|none");
  update_->add_option("sandbox", o->sandboxes, "Their ids")->required();
  update_->add_option("-e,--env", o->env, "NAME=value for commands from now on; may be repeated")->allow_extra_args(false);
  update_->add_option("--unset-env", o->unset_env, "A NAME that they have no more; may be repeated")->allow_extra_args(false);
  update_->add_option("-m,--metadata", o->metadata, "key=value; may be repeated")->allow_extra_args(false);
  update_->add_option("--unset-metadata", o->unset_metadata, "A key to take away; may be repeated")->allow_extra_args(false);
  update_->add_option("--ttl", o->time_limit, "End them after so many seconds, counted anew; none: never")->check(seconds);
  update_->add_option("--at-ttl", o->at_time_limit, "What their end is")->check(CLI::IsMember({"delete", "suspend"}));
  update_->add_option("--idle-pause", o->idle_pause, "Pause them after so many seconds without use; none: never")->check(seconds);
  update_->add_option("--idle-suspend", o->idle_suspend, "Suspend them after so many seconds without use; none: never")->check(seconds);
  update_->add_option("--idle-cpu", o->idle_cpu, "What they may compute while they are idle, in percent of a core; none: the default of 5")
      ->check(percent);
  update_->add_option("--cpus", o->cpus, "Virtual CPUs, from the next start; stopped ones alone");
  update_->add_option("--memory", o->memory_mib, "Memory in MiB, from the next start; stopped ones alone");
  update_->add_option("--egress", o->egress, "What they may reach: none, open, a file, or a preset; may be repeated")
      ->allow_extra_args(false);
  update_->callback(choose(line, [o](Context& x) { return update(x, *o); }));
}

}  // namespace space::cli
