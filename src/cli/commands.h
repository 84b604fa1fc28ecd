// The client commands, one function each. Options are plain values; each function prints its result and gives the exit status.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/session.h"

namespace space::cli {

struct CreateOptions {
  std::string template_name = "base";
  std::string checkpoint;                                // "": from the template
  std::uint32_t cpus = 0, memory_mib = 0, disk_mib = 0;  // 0: the template's
  std::vector<std::string> env;
  std::vector<std::string> metadata;  // "key=value"
  std::uint64_t time_limit_s = 0;     // 0: none
  std::vector<std::string> egress;    // words as egress_policy.h takes them; none: no network
  std::uint64_t idle_pause_s = 0, idle_suspend_s = 0;
  std::uint32_t idle_cpu_percent = 0;  // 0: the server's default
  bool suspend_at_limit = false;
  bool no_wait = false;
};
struct ListOptions {
  std::vector<std::string> metadata;
  std::string state;
  bool quiet = false;  // ids alone
};

struct KeyOptions {
  std::string name = "cli";
  std::string tenant;               // "": the caller's own
  std::vector<std::string> scopes;  // empty: run
  std::uint64_t expires_in_s = 0;   // 0: never
};

// commands_sandbox.cc
// The server's answer, {"operation","sandbox"}: when the sandbox is made, at the latest after `wait`.
Task<json::object> ask_for_sandbox(Context& context, CreateOptions options, std::chrono::seconds wait);
Task<int> create(Context& context, CreateOptions options);
Task<int> list(Context& context, ListOptions options);
Task<int> show(Context& context, std::string sandbox);
Task<int> remove(Context& context, std::vector<std::string> sandboxes, bool no_wait);

// commands_update.cc
struct UpdateOptions {
  std::vector<std::string> sandboxes;
  std::vector<std::string> env, metadata;              // NAME=value
  std::vector<std::string> unset_env, unset_metadata;  // names
  std::string time_limit, idle_pause, idle_suspend;    // seconds, or none; "": as it is
  std::string idle_cpu;                                // percent, or none; "": as it is
  std::string at_time_limit;                           // delete or suspend
  std::uint32_t cpus = 0, memory_mib = 0;              // 0: as it is
  std::vector<std::string> egress;                     // words as egress_policy.h takes them; none: as it is
};
Task<int> update(Context& context, UpdateOptions options);

// commands_life.cc
Task<int> change_state(Context& context, std::string verb,
                       std::vector<std::string> sandboxes);  // pause, resume, suspend, wake, stop, start
Task<int> checkpoint(Context& context, std::string sandbox, std::string name, std::string verb = "checkpoint");  // or "snapshot"
Task<int> list_checkpoints(Context& context, std::string sandbox);
Task<int> remove_checkpoints(Context& context, std::vector<std::string> checkpoints);
struct RestoreOptions {
  std::string sandbox, checkpoint;
  std::string path, into;  // "": everything; where it was
};
Task<int> restore(Context& context, RestoreOptions options);
struct ForkOptions {
  std::string sandbox, checkpoint;
  std::uint32_t count = 1;
  std::vector<std::string> env, metadata;
  std::vector<std::string> egress;                                       // words as egress_policy.h takes them; none: the parent's
  std::uint64_t time_limit_s = 0, idle_pause_s = 0, idle_suspend_s = 0;  // 0: the parent's
  std::uint32_t idle_cpu_percent = 0;
};
Task<int> fork(Context& context, ForkOptions options);
Task<int> tree(Context& context);

// commands_snapshots.cc
struct SnapshotOptions {
  std::string sandbox;
  std::optional<std::uint32_t> every_s, keep;  // nothing: as it is
};
Task<int> snapshots(Context& context, SnapshotOptions options);

// commands_process.cc
Task<int> run(Context& context, CreateOptions create, CommandOptions command, bool keep);
Task<int> exec(Context& context, std::string sandbox, CommandOptions command);
Task<int> shell(Context& context, std::string sandbox, CreateOptions create, CommandOptions command);  // "" makes one and deletes it
Task<int> processes(Context& context, std::string sandbox);
Task<int> signal_command(Context& context, std::string sandbox, std::string session, std::string signal);
Task<int> logs(Context& context, std::string sandbox, std::string session, bool follow);

// commands_server.cc
Task<int> list_templates(Context& context);
Task<int> remove_template(Context& context, std::string reference);
Task<int> list_operations(Context& context, std::string sandbox);
Task<int> show_operation(Context& context, std::string operation, bool wait);
Task<int> cancel_operation(Context& context, std::string operation);
Task<int> create_key(Context& context, KeyOptions options);
Task<int> list_keys(Context& context, std::string tenant);
Task<int> revoke_key(Context& context, std::string key);
Task<int> follow_events(Context& context, std::string after);
Task<int> show_version(Context& context);

// commands_e2b.cc
struct E2bOptions {
  std::string name = "e2b";
  bool templates = false;  // the key may build and publish templates too
  std::filesystem::path run_dir = "/run/space";
};
Task<int> e2b_env(Context& context, E2bOptions options);

// After a request that may have been answered before its operation was over: waits for that, and gives its error.
Task<> settle(Context& context, json::object& answer);

// "key=value" pairs as a JSON object.
Result<json::object> pairs_object(const std::vector<std::string>& pairs);

}  // namespace space::cli
