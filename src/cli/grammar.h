// The grammar of the `space` command, in parts. Each function adds its subcommands to `app`; a subcommand's callback puts what
// has to be done into `line.chosen`, which runs after the whole line has been parsed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/command_line.h"

namespace CLI {
class App;
}

namespace space::cli {

struct CommandLine {
  std::vector<std::string> guest;  // the guest's command, cut off before parsing (guest_command.h)
  ClientOptions client;
  std::function<int()> chosen;
};

void add_server_commands(CLI::App& app, CommandLine& line, const RunRole& run_role);
void add_client_options(CLI::App& app, CommandLine& line);
void add_sandbox_commands(CLI::App& app, CommandLine& line);
void add_life_commands(CLI::App& app, CommandLine& line);  // pause, suspend, checkpoints, forks
void add_update_command(CLI::App& app, CommandLine& line);
void add_snapshot_commands(CLI::App& app, CommandLine& line);
void add_process_commands(CLI::App& app, CommandLine& line);
void add_store_commands(CLI::App& app, CommandLine& line);           // gc, store verify, backup, restore-backup
void add_network_commands(CLI::App& app, CommandLine& line);         // egress, credentials, ports
void add_redteam_command(CLI::App& app, CommandLine& line);          // hands over to tests/adversarial
void add_template_commands(CLI::App& templates, CommandLine& line);  // of `template`: build, publish, builds, cancel
void add_supply_commands(CLI::App& templates, CommandLine& line);    // of `template`: key, sign, verify, sbom
void add_admin_commands(CLI::App& app, CommandLine& line);           // templates, operations, keys, events, version, completion

void add_e2b_commands(CLI::App& app, CommandLine& line);

// A callback that runs `command` as a client.
std::function<void()> choose(CommandLine& line, std::function<Task<int>(Context&)> command, StatusOfError status_of = exit_status_of);

}  // namespace space::cli
