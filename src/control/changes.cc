#include "control/changes.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include "control/egress_rows.h"
#include "control/rows.h"
#include "control/update.h"

namespace space::control::changes {
namespace json = boost::json;
namespace {

using S = SandboxState;
using O = OperationState;

void keep_answer(Session& session, const std::string& tenant, const std::string& key, const KeptAnswer& answer, std::int64_t now_ms) {
  session.exec(
      "INSERT INTO answers (tenant, name, fingerprint, status, body, operation, created_ms) VALUES (:tenant, :name, :print, :status, "
      ":body, "
      ":operation, :created)",
      tenant, key, answer.fingerprint, answer.status, answer.body, answer.operation, now_ms);
}

Result<Accepted> replayed(Session& session, KeptAnswer answer) {
  Accepted out;
  if (auto operation = rows::operation(session, answer.operation)) out.operation = std::move(*operation);
  if (auto sandbox = rows::sandbox(session, out.operation.sandbox)) out.sandbox = std::move(*sandbox);
  out.replay = std::move(answer);
  return out;
}

void insert(Session& session, Operation& operation) {
  const auto row = session.query<long long>(
      "INSERT INTO operations (id, tenant, sandbox, kind, state, reason, request, created_ms) VALUES (:id, :tenant, :sandbox, :kind, "
      ":state, "
      ":reason, :request, :created) RETURNING sequence",
      operation.id, operation.tenant, operation.sandbox, to_string(operation.kind), to_string(operation.state), operation.reason,
      operation.request, operation.created_ms);
  operation.sequence = std::get<0>(row.front());
}

void insert(Session& session, Sandbox& sandbox) {
  const auto row = session.query<long long>(
      "INSERT INTO sandboxes (id, tenant, state, template, cpus, memory_mib, disk_mib, metadata, time_limit_s, created_ms, rest) VALUES "
      "(:id, :tenant, "
      ":state, :template, :cpus, :memory, :disk, :metadata, :limit, :created, :rest) RETURNING sequence",
      sandbox.id, sandbox.tenant, to_string(S::creating), sandbox.template_reference, sandbox.cpus, sandbox.memory_mib, sandbox.disk_mib,
      rows::write_metadata(sandbox.metadata), sandbox.time_limit_s, sandbox.created_ms, rows::write_rest(sandbox.rest));
  sandbox.sequence = std::get<0>(row.front());
  sandbox.state = S::creating;
  for (const auto& [name, value] : sandbox.metadata)
    session.exec("INSERT INTO labels (name, value, sandbox) VALUES (:name, :value, :sandbox)", name, value, sandbox.id);
}

void tell(Session& session, const Operation& operation, std::int64_t now_ms) {
  json::object data{{"kind", to_string(operation.kind)}};
  if (operation.error) data["code"] = operation.error->code;
  rows::append_event(session, {0, operation.tenant, fmt::format("operation.{}", to_string(operation.state)), operation.sandbox,
                               operation.id, json::serialize(data), now_ms});
}

void tell(Session& session, const Sandbox& sandbox, const std::string& operation, std::int64_t now_ms) {
  json::object data{{"state", to_string(sandbox.state)}};
  if (!sandbox.end_reason.empty()) data["reason"] = sandbox.end_reason;
  rows::append_event(session, {0, sandbox.tenant, fmt::format("sandbox.{}", to_string(sandbox.state)), sandbox.id, operation,
                               json::serialize(data), now_ms});
}

// Moves the sandbox and its clock: a time limit runs only while the sandbox does.
void move(Session& session, Sandbox& sandbox, SandboxState to, const std::string& operation, std::int64_t now_ms) {
  const SandboxState from = sandbox.state;
  sandbox.state = to;
  const auto rests = [](S state) { return state == S::paused || state == S::suspended || state == S::stopped; };
  if (to == S::running && sandbox.time_limit_s > 0)
    sandbox.ends_ms = now_ms + (rests(from) && sandbox.remaining_ms > 0 ? sandbox.remaining_ms : sandbox.time_limit_s * 1000);
  else if (rests(to) && sandbox.ends_ms > 0)
    // To the millisecond: with a second given at every pause a sandbox lives as long as somebody pauses it. One whose limit puts it to rest
    // begins anew.
    sandbox.remaining_ms = sandbox.ends_ms > now_ms ? sandbox.ends_ms - now_ms : sandbox.rest.suspend_at_limit ? 0 : 1;
  if (to != S::running)
    sandbox.ends_ms = 0;
  else
    sandbox.end_reason.clear();  // one that had ended was started again
  const bool over = to == S::failed || to == S::ended;
  tell(session, sandbox, operation, now_ms);
  if (to == S::deleted) {
    session.exec("DELETE FROM labels WHERE sandbox = :id", sandbox.id);
    forget_egress(session, sandbox.id);
    session.exec("DELETE FROM sandboxes WHERE sequence = :sequence", sandbox.sequence);
    return;
  }
  session.exec(
      "UPDATE sandboxes SET state = :state, template_digest = :digest, ends_ms = :ends, remaining_ms = :remaining, end_reason = :reason, "
      "over_ms = :over WHERE sequence = :sequence",
      to_string(to), sandbox.template_digest, sandbox.ends_ms, sandbox.remaining_ms, sandbox.end_reason, over ? now_ms : 0,
      sandbox.sequence);
}

std::vector<std::string> children_of(const Operation& operation) {
  std::vector<std::string> out;
  if (operation.kind != OperationKind::fork) return out;
  json::error_code error;
  const json::value request = json::parse(operation.request, error);
  const json::value* list = request.is_object() ? request.get_object().if_contains("children") : nullptr;
  if (error || !list || !list->is_array()) return out;
  for (const json::value& id : list->get_array())
    if (id.is_string()) out.emplace_back(id.get_string());
  return out;
}

// What stays of a request after the end: which checkpoint, which children; never what a client may hold for a secret.
std::string kept_request(const Operation& operation) {
  if (operation.request.empty() || operation.kind == OperationKind::create) return {};
  json::error_code error;
  const json::value request = json::parse(operation.request, error);
  if (error || !request.is_object()) return {};
  json::object kept;
  for (const char* name : {"checkpoint", "children"})
    if (const json::value* value = request.get_object().if_contains(name)) kept[name] = *value;
  return kept.empty() ? std::string() : json::serialize(kept);
}

tl::unexpected<Error> state_forbids(const Sandbox& sandbox, const Operation& wanted) {
  const auto no = [&](std::string_view code, std::string_view what, std::string next) {
    return fail(ErrorKind::conflict, code, fmt::format("sandbox {} {}", sandbox.id, what), std::move(next));
  };
  switch (sandbox.state) {
    case S::creating:
      return no("sandbox_not_ready", "is still being created", "wait for its create operation, then try again");
    case S::deleting:
      return no("sandbox_deleting", "is being deleted", "create another one");
    case S::ended:
      return no("sandbox_ended", fmt::format("has ended ({})", sandbox.end_reason), "start it from its disk, or create another one");
    case S::failed:
      return no("sandbox_failed", "could not be created", "see its create operation; delete it and create another one");
    case S::paused:
      return no("sandbox_paused", "is paused already", "resume it when it is needed");
    case S::suspended:
      return no("sandbox_suspended", "is suspended", "wake it first");
    case S::stopped:
      return no("sandbox_stopped", "is stopped", "start it first");
    default:
      break;
  }
  return no("sandbox_running", fmt::format("is running: nothing to {}", to_string(wanted.kind)), "use it");
}

Result<> check_volume_is_new(Session& session, const Sandbox& volume) {
  const std::string& name = volume.metadata.at(kVolumeName);
  const auto same = session.query<std::string>(
      "SELECT s.id FROM sandboxes s JOIN labels l ON l.sandbox = s.id WHERE l.name = :label AND l.value = :name AND s.tenant = :tenant AND "
      "s.state NOT IN ('deleting', 'deleted', 'failed')",
      std::string(kVolumeName), name, volume.tenant);
  if (same.empty()) return {};
  return fail(ErrorKind::conflict, "volume_exists", fmt::format("there is a volume '{}' already", name), "use it, or choose another name");
}

}  // namespace

// The answer kept under the request's key, if any; another request under that key is refused.
Result<std::optional<KeptAnswer>> find_answer(Session& session, const std::string& tenant, const std::string& key,
                                              const std::string& fingerprint) {
  const auto found = session.query<std::string, long long, std::string, std::string>(
      "SELECT fingerprint, status, body, operation FROM answers WHERE tenant = :tenant AND name = :name", tenant, key);
  if (found.empty()) return std::optional<KeptAnswer>();
  const auto& [print, status, body, operation] = found.front();
  if (print != fingerprint)
    return fail(ErrorKind::unsupported, "idempotency_key_reused", "this Idempotency-Key was used for another request",
                "use a new key for every new request; send the same key only with exactly the same request");
  return std::optional(KeptAnswer{print, static_cast<int>(status), body, operation});
}

Error sandbox_not_found(const std::string& id) {
  return {ErrorKind::not_found, "sandbox_not_found", fmt::format("there is no sandbox {}", id), "list what there is: GET /v1/sandboxes"};
}
Error operation_not_found(const std::string& id) {
  return {ErrorKind::not_found, "operation_not_found", fmt::format("there is no operation {}", id),
          "finished operations are kept for a day: GET /v1/operations"};
}

Result<Accepted> accept_create(Session& session, Sandbox sandbox, Operation operation, const std::optional<Idempotency>& keep) {
  if (keep) {
    TRY(auto kept, find_answer(session, operation.tenant, keep->key, keep->fingerprint));
    if (kept) return replayed(session, std::move(*kept));
  }
  if (is_volume(sandbox)) TRY_VOID(check_volume_is_new(session, sandbox));
  insert(session, sandbox);
  if (!sandbox.egress.empty())
    insert_egress(session, {sandbox.id, sandbox.tenant, sandbox.lineage.empty() ? sandbox.id : sandbox.lineage, 1, sandbox.egress});
  insert(session, operation);
  tell(session, sandbox, operation.id, operation.created_ms);
  Accepted out{std::move(sandbox), std::move(operation), false, std::nullopt};
  if (keep) keep_answer(session, out.operation.tenant, keep->key, keep->render(out.sandbox, out.operation), out.operation.created_ms);
  return out;
}

// The children's rows are there from the start, so that they can be looked at, and deleted, while they are made.
Result<Accepted> accept_fork(Session& session, std::vector<Sandbox> children, Operation operation, const std::optional<Idempotency>& keep) {
  TRY(Accepted out, accept_change(session, std::move(operation), keep));
  if (out.replay) return out;
  for (Sandbox& child : children) {
    insert(session, child);
    copy_egress(session, out.operation.sandbox, child.id, child.egress);
    tell(session, child, out.operation.id, out.operation.created_ms);
  }
  return out;
}

Result<Accepted> accept_change(Session& session, Operation operation, const std::optional<Idempotency>& keep) {
  if (keep) {
    TRY(auto kept, find_answer(session, operation.tenant, keep->key, keep->fingerprint));
    if (kept) return replayed(session, std::move(*kept));
  }
  auto found = rows::sandbox(session, operation.sandbox);
  if (!found || found->tenant != operation.tenant) return fail(sandbox_not_found(operation.sandbox));
  Sandbox& sandbox = *found;
  const auto busy = rows::operations(session, "WHERE sandbox = :sandbox AND finished_ms = 0 ORDER BY sequence", sandbox.id);

  std::optional<Operation> same;
  for (const Operation& other : busy)
    if (other.kind == operation.kind && !other.cancel_requested) same = other;
  // Of these each request is another one.
  const bool repeatable = operation.kind != OperationKind::checkpoint && operation.kind != OperationKind::restore &&
                          operation.kind != OperationKind::fork && operation.kind != OperationKind::update &&
                          operation.kind != OperationKind::snapshot;
  const bool joins = same && repeatable && (operation.kind == OperationKind::remove || same->id == busy.back().id);
  if (!joins) {
    if (operation.kind == OperationKind::remove) {
      if (!can_move(sandbox.state, S::deleting) && sandbox.state != S::deleting) return state_forbids(sandbox, operation);
      for (const Operation& other : busy)
        session.exec("UPDATE operations SET cancel_requested = 1 WHERE sequence = :sequence", other.sequence);
      sandbox.end_reason = operation.reason;
      if (sandbox.state != S::deleting) move(session, sandbox, S::deleting, operation.id, operation.created_ms);
    } else {
      const bool lives =
          sandbox.state == S::running || sandbox.state == S::paused || sandbox.state == S::suspended || sandbox.state == S::stopped;
      if (!may_begin(operation.kind, sandbox.state) && (busy.empty() || !lives)) return state_forbids(sandbox, operation);
      if (!busy.empty())
        return fail(
            ErrorKind::conflict, "sandbox_busy",
            fmt::format("operation {} ({}) of sandbox {} has not finished", busy.back().id, to_string(busy.back().kind), sandbox.id),
            fmt::format("wait for it: GET /v1/operations/{}?wait=30", busy.back().id));
    }
    insert(session, operation);
  }
  Accepted out{std::move(sandbox), joins ? std::move(*same) : std::move(operation), joins, std::nullopt};
  if (keep) keep_answer(session, out.operation.tenant, keep->key, keep->render(out.sandbox, out.operation), out.operation.created_ms);
  return out;
}

Result<> claim_operation(Session& session, const std::string& id, std::int64_t started_ms) {
  session.exec("UPDATE operations SET state = 'running', started_ms = :started WHERE id = :id AND state = 'pending'", started_ms, id);
  return {};
}

Result<Finished> finish_operation(Session& session, const std::string& id, const Outcome& outcome, std::int64_t now_ms) {
  auto operation = rows::operation(session, id);
  if (!operation) return fail(operation_not_found(id));
  auto sandbox = rows::sandbox(session, operation->sandbox);
  if (!can_move(operation->state, outcome.state)) return Finished{std::move(*operation), std::move(sandbox)};  // finished before: as it was

  operation->state = outcome.state;
  operation->error = outcome.error;
  operation->spans = outcome.spans;
  const std::vector<std::string> children = children_of(*operation);
  if (operation->kind == OperationKind::update && outcome.state == O::succeeded && sandbox && sandbox->state != S::deleting)
    TRY_VOID(apply_update(session, *sandbox, operation->id, operation->request, now_ms));
  operation->request = kept_request(*operation);
  operation->finished_ms = now_ms;
  if (sandbox) {
    const bool new_digest = !outcome.template_digest.empty() && sandbox->template_digest != outcome.template_digest;
    if (new_digest) sandbox->template_digest = outcome.template_digest;
    if (outcome.cpus > 0 && outcome.memory_mib > 0 && (outcome.cpus != sandbox->cpus || outcome.memory_mib != sandbox->memory_mib)) {
      sandbox->cpus = outcome.cpus;
      sandbox->memory_mib = outcome.memory_mib;
      session.exec("UPDATE sandboxes SET cpus = :cpus, memory_mib = :memory WHERE sequence = :sequence", sandbox->cpus, sandbox->memory_mib,
                   sandbox->sequence);
    }
    // A create that was overtaken by a delete leaves the rest to it.
    const bool overtaken = operation->kind == OperationKind::create && sandbox->state != S::creating;
    if (outcome.sandbox_state && !overtaken && can_move(sandbox->state, *outcome.sandbox_state))
      move(session, *sandbox, *outcome.sandbox_state, operation->id, now_ms);
    if (sandbox->state == S::deleted) sandbox.reset();
  }
  session.exec(
      "UPDATE operations SET state = :state, request = :request, error = :error, spans = :spans, finished_ms = :finished, "
      "started_ms = CASE WHEN started_ms = 0 THEN :started ELSE started_ms END WHERE sequence = :sequence",
      to_string(operation->state), operation->request, rows::write_error(operation->error), rows::write_spans(operation->spans), now_ms,
      now_ms, operation->sequence);
  if (operation->started_ms == 0) operation->started_ms = now_ms;
  for (const std::string& name : children) {
    auto child = rows::sandbox(session, name);
    if (!child || child->state != S::creating) continue;  // deleted meanwhile
    if (sandbox) child->template_digest = sandbox->template_digest;
    move(session, *child, outcome.state == OperationState::succeeded ? S::running : S::failed, operation->id, now_ms);
  }
  tell(session, *operation, now_ms);
  return Finished{std::move(*operation), std::move(sandbox)};
}

Result<Operation> request_cancel(Session& session, const std::string& tenant, const std::string& id) {
  auto operation = rows::operation(session, id);
  if (!operation || operation->tenant != tenant) return fail(operation_not_found(id));
  if (is_finished(operation->state))
    return fail(ErrorKind::conflict, "operation_finished", fmt::format("operation {} has {} already", id, to_string(operation->state)),
                "nothing is left to cancel");
  if (operation->kind == OperationKind::remove)
    return fail(ErrorKind::conflict, "not_cancellable", "a delete cannot be taken back", "wait for it, then create another sandbox");
  operation->cancel_requested = true;
  session.exec("UPDATE operations SET cancel_requested = 1 WHERE sequence = :sequence", operation->sequence);
  return std::move(*operation);
}

Result<> note_snapshot(Session& session, const std::string& id, const std::string& snapshot, std::int64_t now_ms) {
  const auto sandbox = rows::sandbox(session, id);
  if (!sandbox) return {};
  const json::object data{{"checkpoint", snapshot}};
  rows::append_event(session, {0, sandbox->tenant, "sandbox.snapshot", id, "", json::serialize(data), now_ms});
  return {};
}

Result<bool> end_sandbox(Session& session, const std::string& id, const std::string& reason, std::int64_t now_ms) {
  auto sandbox = rows::sandbox(session, id);
  if (!sandbox || !can_move(sandbox->state, S::ended)) return false;
  sandbox->end_reason = reason;
  move(session, *sandbox, S::ended, "", now_ms);
  return true;
}

Result<bool> correct_state(Session& session, const std::string& id, SandboxState state, std::int64_t now_ms) {
  auto sandbox = rows::sandbox(session, id);
  const bool told = state == S::running || state == S::paused || state == S::suspended || state == S::stopped;
  if (!sandbox || !can_move(sandbox->state, state) || !told || sandbox->state == S::creating) return false;
  if (!session.query<long long>("SELECT sequence FROM operations WHERE sandbox = :sandbox AND finished_ms = 0 LIMIT 1", id).empty())
    return false;
  move(session, *sandbox, state, "", now_ms);
  return true;
}

Result<std::optional<KeptAnswer>> begin_answer(Session& session, const std::string& tenant, const std::string& key,
                                               const std::string& fingerprint, std::int64_t now_ms) {
  TRY(auto kept, find_answer(session, tenant, key, fingerprint));
  if (!kept) keep_answer(session, tenant, key, {fingerprint, 0, "", ""}, now_ms);
  return kept;
}

Result<> remember_answer(Session& session, const std::string& tenant, const std::string& key, const KeptAnswer& answer,
                         std::int64_t now_ms) {
  const long long changed = session.exec(
      "UPDATE answers SET status = :status, body = :body, operation = :operation WHERE tenant = :tenant AND name = :name AND fingerprint = "
      ":print",
      answer.status, answer.body, answer.operation, tenant, key, answer.fingerprint);
  if (changed == 0) keep_answer(session, tenant, key, answer, now_ms);
  return {};
}

Result<> forget_answer(Session& session, const std::string& tenant, const std::string& key) {
  session.exec("DELETE FROM answers WHERE tenant = :tenant AND name = :name", tenant, key);
  return {};
}

}  // namespace space::control::changes
