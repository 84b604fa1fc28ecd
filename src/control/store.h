// The memory of the control plane, as verbs of its own domain: no SQL and no transaction leaves this folder. A verb that changes
// something is durable when it returns (an fsync stands behind it) and happens whole or not at all; each decides by the state it
// finds inside its own transaction, so that callers never check first and change later.
//
// Verbs are awaited on the role's loop and run on the store's own threads: many pending changes share one transaction.
// SQLite is behind it today (sqlite_store.h); what a verb promises is written so that PostgreSQL can stand there as well.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "control/adopt.h"
#include "control/egress_rows.h"
#include "control/types.h"

namespace space::control {

// An answer kept under a client's Idempotency-Key. status 0: the first request is still under way, or was when we were killed.
struct KeptAnswer {
  std::string fingerprint;  // of the request: another one under the same key is refused
  int status = 0;
  std::string body;
  std::string operation;  // the operation that the request started, or ""
};

// What a verb that starts an operation does about the client's Idempotency-Key, in the same transaction.
struct Idempotency {
  std::string key;
  std::string fingerprint;
  // Renders the answer to keep. Called on the store's thread, so it may only use what it is given.
  std::function<KeptAnswer(const Sandbox&, const Operation&)> render;
};

struct Accepted {
  Sandbox sandbox;
  Operation operation;
  bool joined = false;               // an operation of the same kind was there already: it is the answer
  std::optional<KeptAnswer> replay;  // this request was answered before: nothing was done
};

struct Page {
  std::int64_t before = 0;  // sequence of the last item of the page before; 0: the newest
  std::size_t limit = 50;
};

struct SandboxFilter {
  std::vector<SandboxState> states;             // empty: every state
  std::map<std::string, std::string> metadata;  // all must be there
  bool with_volumes = true;
};

struct OperationFilter {
  std::string sandbox;  // "": every sandbox
  std::vector<OperationState> states;
};

// How an operation ended. The sandbox moves to `sandbox_state` when the table allows it; `deleted` removes its row.
struct Outcome {
  OperationState state = OperationState::succeeded;
  std::optional<Error> error;
  std::vector<Span> spans;
  std::optional<SandboxState> sandbox_state;
  std::string template_digest;            // of a create
  std::int64_t cpus = 0, memory_mib = 0;  // of a restore; 0: as it was
};

struct Finished {
  Operation operation;
  std::optional<Sandbox> sandbox;  // as it is now; nothing once deleted
};

struct Owned {  // one sandbox as the reconciliation sees it
  std::string id, tenant;
  SandboxState state = SandboxState::creating;
  bool busy = false;  // has an unfinished operation
};

struct EventWindow {
  std::int64_t first = 1, last = 0;  // what is kept; empty: last < first
};

struct Retention {
  std::int64_t answers_ms = 24LL * 3600 * 1000;
  std::int64_t operations_ms = 24LL * 3600 * 1000;  // finished ones
  std::int64_t remains_ms = 24LL * 3600 * 1000;     // sandboxes that failed or ended, kept to be read
  std::int64_t events_ms = 7LL * 24 * 3600 * 1000;
  std::size_t max_answers = 20'000;  // of each tenant, the newest
  std::size_t max_operations = 50'000, max_events = 100'000;
};

class Store {
 public:
  virtual ~Store() = default;

  // `sandbox` and `operation` come with id, tenant, request and created_ms; both are recorded as creating and pending. A volume of a name
  // that another of the tenant's has: conflict/volume_exists.
  virtual Task<Accepted> accept_create(Sandbox sandbox, Operation operation, std::optional<Idempotency> keep) = 0;
  // Any change but a create of `operation.sandbox`. Errors: sandbox_not_found, and conflict where the state forbids it. A delete
  // asks every other unfinished operation of the sandbox to end.
  virtual Task<Accepted> accept_change(Operation operation, std::optional<Idempotency> keep) = 0;
  // As accept_change, with the rows of the sandboxes that a fork is to make; they move with its end.
  virtual Task<Accepted> accept_fork(std::vector<Sandbox> children, Operation operation, std::optional<Idempotency> keep) = 0;
  // Notes that it runs. Written along with a later change, since losing it loses nothing: after a restart both go on.
  virtual void claim_operation(std::string id, std::int64_t started_ms) = 0;
  virtual Task<Finished> finish_operation(std::string id, Outcome outcome) = 0;
  virtual Task<Operation> request_cancel(std::string tenant, std::string id) = 0;  // conflict: operation_finished, not_cancellable
  // The sandbox is over without a request. False: it was not running or paused, nothing was done.
  virtual Task<bool> end_sandbox(std::string id, std::string reason) = 0;
  // Its disk was kept by itself: an event, and nothing else. A sandbox that is not there is none.
  virtual Task<> note_snapshot(std::string id, std::string snapshot) = 0;
  // node is right about running, paused, suspended or stopped, also where it had ended here. False: no way leads there, or it is busy.
  virtual Task<bool> correct_state(std::string id, SandboxState state) = 0;

  // A database that was lost or is an older one (adopt.h says what each does). kept_settings: texts by id; `sandbox` "": of all.
  virtual Task<std::map<std::string, std::string>> kept_settings(std::string sandbox) = 0;
  virtual Task<bool> adopt_sandbox(Sandbox sandbox, Kept kept) = 0;
  virtual Task<bool> adopt_egress(EgressSettings settings) = 0;
  virtual Task<std::map<std::string, std::int64_t>> tenants_without_key() = 0;

  virtual Task<Sandbox> find_sandbox(std::string tenant, std::string id) = 0;  // sandbox_not_found, also for another tenant's
  virtual Task<Sandbox> find_any_sandbox(std::string id) = 0;                  // for ourselves
  virtual Task<std::vector<Sandbox>> list_sandboxes(std::string tenant, Page page, SandboxFilter filter) = 0;
  // What the API in front of a sandbox keeps beside it (E2B's options): one JSON text, "" when there is none. Written before the
  // sandbox is accepted, so that no crash leaves a sandbox without it; what no sandbox came to is pruned.
  virtual Task<> put_settings(std::string sandbox, std::string text) = 0;
  virtual Task<std::string> find_settings(std::string sandbox) = 0;
  // Moves the time at which a running sandbox is due; `only_later` never to an earlier one. sandbox_not_found; conflict when it does
  // not run. Gives the sandbox as it is now.
  virtual Task<Sandbox> set_deadline(std::string tenant, std::string id, std::int64_t ends_ms, bool only_later) = 0;
  virtual Task<std::vector<Owned>> owned_sandboxes() = 0;
  virtual Task<std::vector<Sandbox>> resting_sandboxes() = 0;                      // with a rest policy, running or paused
  virtual Task<std::vector<Sandbox>> due_sandboxes(std::int64_t now_ms) = 0;       // their time limit has passed
  virtual Task<std::vector<Sandbox>> old_remains(std::int64_t before_ms) = 0;      // failed or ended before that time, idle
  virtual Task<std::int64_t> next_deadline() = 0;                                  // the earliest ends_ms, 0: none
  virtual Task<Operation> find_operation(std::string tenant, std::string id) = 0;  // operation_not_found
  virtual Task<std::vector<Operation>> list_operations(std::string tenant, Page page, OperationFilter filter) = 0;
  virtual Task<std::vector<Operation>> unfinished_operations() = 0;  // oldest first

  virtual Task<std::vector<Event>> events_after(std::string tenant, std::int64_t sequence, std::size_t limit) = 0;
  virtual Task<EventWindow> event_window() = 0;

  virtual Task<> put_key(Key key) = 0;
  virtual Task<Key> find_key_by_hash(std::string hash) = 0;  // key_not_found; revoked ones are found too
  virtual Task<std::vector<Key>> list_keys(std::string tenant) = 0;
  virtual Task<Key> revoke_key(std::string tenant, std::string id) = 0;  // tenant "": anybody's. conflict/last_key; twice: the same answer
  virtual Task<std::vector<std::string>> tenants() = 0;                  // that have a key which was not revoked, or a sandbox
  virtual Task<std::size_t> count_keys() = 0;                            // ever made

  // For requests that start no operation: begin → (do it) → remember or forget. begin gives what is there already, if anything;
  // another fingerprint is idempotency_key_reused.
  virtual Task<std::optional<KeptAnswer>> begin_answer(std::string tenant, std::string key, std::string fingerprint) = 0;
  virtual Task<std::optional<KeptAnswer>> find_answer(std::string tenant, std::string key, std::string fingerprint) = 0;  // begins nothing
  virtual Task<> remember_answer(std::string tenant, std::string key, KeptAnswer answer) = 0;
  virtual Task<> forget_answer(std::string tenant, std::string key) = 0;

  // A sandbox's network (egress_rows.h says what each does).
  virtual Task<EgressSettings> put_egress(std::string tenant, std::string sandbox, std::string document,
                                          std::optional<std::int64_t> expected) = 0;
  virtual Task<EgressSettings> find_egress(std::string tenant, std::string sandbox) = 0;
  virtual Task<std::vector<EgressSettings>> all_egress() = 0;
  virtual Task<> set_port(std::string tenant, std::string sandbox, std::uint16_t port, bool is_public) = 0;
  virtual Task<std::vector<std::uint16_t>> public_ports(std::string tenant, std::string sandbox) = 0;
  virtual Task<bool> port_is_public(std::string sandbox, std::uint16_t port) = 0;

  virtual Task<std::size_t> prune(Retention retention) = 0;  // rows removed
  // Called on the loop after changes that appended events.
  virtual void on_events(std::function<void()> observer) = 0;

  struct Counters {
    std::uint64_t transactions = 0, changes = 0, failures = 0;
  };
  virtual Counters counters() const = 0;
};

}  // namespace space::control
