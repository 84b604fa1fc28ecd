// What the control plane remembers: sandboxes, operations, events, keys. Plain values, copied freely.
// States change only as the tables at the end allow; the store asks them before every change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/scopes.h"

namespace space::control {

enum class SandboxState { creating, running, paused, deleting, deleted, failed, ended, suspended, stopped };
enum class OperationState { pending, running, succeeded, failed, cancelled };
// `remove` is written "delete". fork: new sandboxes out of a running one or a checkpoint; restore: back to a checkpoint, or one path
// out of one; update: of settings (update.h); snapshot: a point of the disk alone.
enum class OperationKind { create, remove, pause, resume, suspend, wake, stop, start, checkpoint, restore, fork, update, snapshot };

// One step of an operation. Microseconds; `start_us` counts from the moment the operation was accepted.
struct Span {
  std::string name;
  std::int64_t start_us = 0;
  std::int64_t duration_us = 0;
};

// What a guest may compute while nobody uses it; one that does nothing takes up to 1 % under TCG.
inline constexpr std::int64_t kIdleCpuPercent = 5;

// When a sandbox comes to rest by itself. One that has any of it wakes by the next request to it, which waits.
struct RestPolicy {
  std::int64_t idle_pause_s = 0, idle_suspend_s = 0;  // without a session, a request, traffic or work for so long; 0: never
  std::int64_t idle_cpu_percent = kIdleCpuPercent;    // of one core; more than that is work
  bool suspend_at_limit = false;                      // its time limit suspends it, else deletes it
  bool any() const { return idle_pause_s > 0 || idle_suspend_s > 0 || suspend_at_limit; }
  bool operator==(const RestPolicy&) const = default;
};

struct Sandbox {
  std::int64_t sequence = 0;  // grows with every sandbox; the order of lists
  std::string id;
  std::string tenant;
  SandboxState state = SandboxState::creating;
  std::string template_reference;  // as the client named it
  std::string template_digest;     // "" until node resolved it
  std::int64_t cpus = 1, memory_mib = 512, disk_mib = 4096;
  std::map<std::string, std::string> metadata;
  std::int64_t time_limit_s = 0;  // 0: none. Counts while it runs, not while it is created or paused
  std::int64_t created_ms = 0;
  std::int64_t ends_ms = 0;       // when it will be deleted; 0: no limit, or the clock stands still
  std::int64_t remaining_ms = 0;  // of the time limit, kept while paused
  std::string egress;             // at its create alone: its first policy (egress_rows.h), "" for none; of a fork, for its parent's
  std::string lineage;            // at its create alone: whose certificate authority its guest trusts, "" for its own
  RestPolicy rest;
  std::string end_reason;  // "", "time_limit", "requested", or node's reason when it ended by itself
};

struct Operation {
  std::int64_t sequence = 0;
  std::string id;
  std::string tenant;
  std::string sandbox;
  OperationKind kind = OperationKind::create;
  OperationState state = OperationState::pending;
  bool cancel_requested = false;
  std::string reason;  // of a delete: "requested", "time_limit"
  // JSON. Of a create what only the engine reads (env), of a fork {"checkpoint","take","children","env"}, of the others about checkpoints
  // {"checkpoint","name"}, of an update what update.h writes. At the end nothing stays of it but the ids.
  std::string request;
  std::optional<Error> error;
  std::vector<Span> spans;
  std::int64_t created_ms = 0, started_ms = 0, finished_ms = 0;  // 0: not yet
};

struct Event {
  std::int64_t sequence = 0;  // without gaps inside the store, shared by all tenants
  std::string tenant;
  std::string type;                // "sandbox.running", "operation.failed", "key.created", …
  std::string sandbox, operation;  // "" where none is meant
  std::string data;                // JSON object
  std::int64_t time_ms = 0;
};

struct Key {
  std::string id;
  std::string tenant;
  std::string name;
  std::string hash;                             // hex of SHA-256 over the whole key
  std::string prefix;                           // its first characters, to recognise it by
  std::int64_t created_ms = 0, revoked_ms = 0;  // revoked_ms 0: valid
  std::int64_t expires_ms = 0;                  // 0: never
  Scopes scopes = Scopes::all();
};

// The labels of a sandbox that is a volume (docs/e2b.md): its name, and one that all have. Native lists leave volumes out unless a label is
// asked for, and one that ended stays until it is deleted: files are in it.
inline constexpr const char* kVolumeName = "space.volume";
inline constexpr const char* kKindLabel = "space.kind";
inline constexpr const char* kVolumeKind = "volume";
bool is_volume(const Sandbox& sandbox);

// The tenant of whoever keeps the host: its admin keys make keys for other tenants.
inline constexpr std::string_view kDefaultTenant = "default";

// Whether an operation of this kind may be accepted for a sandbox in this state; for all but create and remove.
bool may_begin(OperationKind kind, SandboxState state);
// The state that a success leaves; nothing: as it was.
std::optional<SandboxState> state_after(OperationKind kind);

bool can_move(SandboxState from, SandboxState to);
bool can_move(OperationState from, OperationState to);
bool is_finished(OperationState state);

std::string_view to_string(SandboxState state);
std::string_view to_string(OperationState state);
std::string_view to_string(OperationKind kind);
std::optional<SandboxState> sandbox_state(std::string_view text);
std::optional<OperationState> operation_state(std::string_view text);
std::optional<OperationKind> operation_kind(std::string_view text);

}  // namespace space::control
