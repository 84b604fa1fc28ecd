// Finding, changing and remembering sandboxes for the handlers.
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "e2b/request.h"
#include "e2b/state.h"
#include "e2b/volumes.h"

namespace space::e2b {
namespace {

using control::OperationKind;
using control::OperationState;
using control::SandboxState;

constexpr std::size_t kMostKnown = 10'000;
constexpr std::chrono::seconds kPatience{120};  // for one operation; clients wait a minute

auto not_found(const std::string& id) {
  return fail(ErrorKind::not_found, "sandbox_not_found", fmt::format("Sandbox \"{}\" doesn't exist or you don't have access to it", id));
}

// The sandbox is on its way between running and paused for as long as this lives.
class Moving {
 public:
  Moving(State& state, std::string id) : state_(state), id_(std::move(id)) { state_.moving.insert(id_); }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;
  ~Moving() {
    state_.moving.erase(id_);
    state_.moved.notify_all();
  }

 private:
  State& state_;
  std::string id_;
};

}  // namespace

bool is_running(SandboxState state) { return state == SandboxState::running; }
bool is_paused(SandboxState state) {
  return state == SandboxState::paused || state == SandboxState::suspended || state == SandboxState::stopped;
}

Task<std::shared_ptr<const Settings>> settings_of(State& state, std::string id) {
  if (const auto known = state.known.find(id); known != state.known.end()) co_return known->second;
  CO_TRY(const std::string text, co_await state.parts.store.find_settings(id));
  CO_TRY(Settings settings, decode_settings(text));
  if (state.known.size() >= kMostKnown) state.known.clear();
  co_return state.known[id] = std::make_shared<const Settings>(std::move(settings));
}

Task<> put_settings(State& state, std::string id, Settings settings) {
  std::string text = encode(settings);
  CO_TRY_VOID(co_await state.parts.store.put_settings(id, std::move(text)));
  if (state.known.size() >= kMostKnown) state.known.clear();
  state.known[id] = std::make_shared<const Settings>(std::move(settings));
  co_return Result<>();
}

Task<Found> find(State& state, std::string tenant, std::string id) {
  while (state.moving.contains(id)) co_await state.moved.wait();
  auto sandbox = co_await state.parts.store.find_sandbox(std::move(tenant), id);
  if (!sandbox && sandbox.error().kind == ErrorKind::not_found) co_return not_found(id);
  if (!sandbox) co_return fail(std::move(sandbox).error());
  if ((!is_running(sandbox->state) && !is_paused(sandbox->state)) || control::is_volume(*sandbox)) co_return not_found(id);
  CO_TRY(const auto settings, co_await settings_of(state, id));
  const bool running = is_running(sandbox->state);
  co_return Found{std::move(*sandbox), settings, running};
}

Task<Found> find(State& state, const http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange.param("id")));
  co_return co_await find(state, tenant_of(exchange), std::move(id));
}

Task<control::Sandbox> change(State& state, std::string tenant, std::string id, OperationKind kind, std::string request) {
  control::Operation operation;
  operation.id = new_id();
  operation.tenant = tenant;
  operation.sandbox = std::move(id);
  operation.kind = kind;
  operation.request = std::move(request);
  if (kind == OperationKind::remove) operation.reason = "requested";
  operation.created_ms = state.parts.clock.wall_ms();
  CO_TRY(control::Accepted accepted, co_await state.parts.engine.change(std::move(operation), std::nullopt));
  control::Operation over = std::move(accepted.operation);
  if (!is_finished(over.state)) {
    CO_TRY(over, co_await state.parts.engine.wait(tenant, over.id, kPatience));
  }
  if (!is_finished(over.state))
    co_return fail(ErrorKind::unavailable, "operation_slow", "the operation takes longer than a request may", "ask again in a while");
  if (over.state != OperationState::succeeded)
    co_return fail(over.error.value_or(Error{ErrorKind::internal, "operation_failed", "the operation failed", ""}));
  if (kind == OperationKind::remove) co_return std::move(accepted.sandbox);
  co_return co_await state.parts.store.find_sandbox(tenant, over.sandbox);
}

Task<control::Sandbox> launch(State& state, control::Sandbox sandbox, CreateBody wanted, std::string checkpoint) {
  sandbox.id = new_id();
  sandbox.metadata = std::move(wanted.metadata);
  sandbox.time_limit_s = wanted.settings.timeout_s;
  sandbox.created_ms = state.parts.clock.wall_ms();
  const control::EgressSettings network{sandbox.id, sandbox.tenant, sandbox.lineage.empty() ? sandbox.id : sandbox.lineage, 1,
                                        sandbox.egress};
  json::object env{
      {"E2B_SANDBOX", "true"}, {"E2B_SANDBOX_ID", sandbox.id}, {"E2B_TEMPLATE_ID", template_id_of(sandbox.template_reference)}};
  for (const auto& [name, value] : wanted.env) env[name] = value;
  control::Operation operation;
  operation.id = new_id();
  operation.tenant = sandbox.tenant;
  operation.sandbox = sandbox.id;
  operation.kind = OperationKind::create;
  operation.created_ms = sandbox.created_ms;
  json::object request{{"env", std::move(env)}};
  if (!checkpoint.empty()) request["checkpoint"] = checkpoint;
  operation.request = json::serialize(request);
  const std::vector<VolumeMount> mounts = wanted.settings.mounts;
  CO_TRY_VOID(co_await put_settings(state, sandbox.id, std::move(wanted.settings)));
  CO_TRY(control::Accepted accepted, co_await state.parts.engine.create(std::move(sandbox), std::move(operation), std::nullopt));
  // A gateway that does not take it now is told again, and allows nothing until then.
  if (state.parts.egress && !network.document.empty())
    if (auto told = co_await state.parts.egress->put(network); !told)
      log::warn("egress.policy_not_applied", {{"sandbox", network.sandbox}, {"error", told.error()}});
  CO_TRY(const control::Operation over, co_await state.parts.engine.wait(accepted.sandbox.tenant, accepted.operation.id, kPatience));
  if (over.state != OperationState::succeeded)
    co_return fail(
        over.error.value_or(Error{ErrorKind::unavailable, "operation_slow", "the sandbox was not ready in time", "ask again in a while"}));
  if (!mounts.empty()) {
    auto mounted = co_await mount_volumes(state, accepted.sandbox, mounts);
    if (!mounted) {
      if (auto removed = co_await change(state, accepted.sandbox.tenant, accepted.sandbox.id, OperationKind::remove); !removed)
        log::warn("e2b.sandbox_left", {{"sandbox", accepted.sandbox.id}, {"error", removed.error()}});
      co_return fail(std::move(mounted).error());
    }
  }
  co_return co_await state.parts.store.find_sandbox(accepted.sandbox.tenant, accepted.sandbox.id);
}

Task<> pause(State& state, Found found, bool memory) {
  if (state.moving.contains(found.sandbox.id)) {
    CO_TRY(found, co_await find(state, found.sandbox.tenant, found.sandbox.id));
    if (!found.running)
      co_return fail(ErrorKind::conflict, "sandbox_paused", fmt::format("sandbox {} is paused already", found.sandbox.id));
  }
  const Moving moving(state, found.sandbox.id);
  const std::int64_t paused_ms = state.parts.clock.wall_ms();
  // E2B's pause frees the machine: memory goes to storage, or is given up.
  CO_TRY_VOID(co_await change(state, found.sandbox.tenant, found.sandbox.id, memory ? OperationKind::suspend : OperationKind::stop));
  CO_TRY(const auto now, co_await settings_of(state, found.sandbox.id));  // a change of its network may have ended meanwhile
  Settings settings = *now;
  settings.paused_ms = paused_ms;
  co_return co_await put_settings(state, found.sandbox.id, std::move(settings));
}

Task<Found> wake(State& state, Found found, bool memory) {
  if (state.moving.contains(found.sandbox.id)) {  // somebody else is at it
    CO_TRY(found, co_await find(state, found.sandbox.tenant, found.sandbox.id));
    if (found.running) co_return found;
  }
  const Moving moving(state, found.sandbox.id);
  const std::int64_t started_ms = state.parts.clock.wall_ms();
  CO_TRY(found.sandbox,
         co_await change(state, found.sandbox.tenant, found.sandbox.id, memory ? OperationKind::wake : OperationKind::start));
  CO_TRY(const auto now, co_await settings_of(state, found.sandbox.id));
  Settings settings = *now;
  settings.started_ms = started_ms;
  settings.paused_ms = 0;
  CO_TRY_VOID(co_await put_settings(state, found.sandbox.id, std::move(settings)));
  CO_TRY(found.settings, co_await settings_of(state, found.sandbox.id));
  found.running = true;
  // node mounts them by itself; a client that asked may use them at once.
  if (!found.settings->mounts.empty())
    if (auto mounted = co_await mount_volumes(state, found.sandbox, found.settings->mounts); !mounted)
      log::warn("e2b.volumes_late", {{"sandbox", found.sandbox.id}, {"error", mounted.error()}});
  co_return found;
}

Task<Tokens> tokens_of(State& state, const control::Sandbox& sandbox) {
  http::Request request;
  request.target = fmt::format("/v1/sandboxes/{}/tokens", sandbox.id);
  request.headers.set("Space-Tenant", sandbox.tenant);
  auto answer = co_await state.parts.node.forwarding().request(std::move(request));
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  CO_TRY(const json::object object, parse_json_object(answer->body));
  JsonReader r(object);
  Tokens tokens{r.text("envd", 32, 128), r.text("traffic", 32, 128)};
  CO_TRY_VOID(r.done());
  co_return tokens;
}

}  // namespace space::e2b
