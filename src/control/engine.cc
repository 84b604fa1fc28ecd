#include "control/engine.h"

#include <fmt/format.h>

#include "base/log.h"
#include "control/engine_state.h"
#include "control/update.h"

namespace space::control {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kFirstPause{50}, kLongestPause{1'000};

// Errors that may pass by themselves: nobody answered, or node asked for patience.
bool may_pass(const Error& error) { return error.kind == ErrorKind::unavailable; }

bool changes_policy(const Operation& operation) {
  if (operation.kind != OperationKind::update) return false;
  const auto update = decode_update(operation.request);
  return update && !update->egress.empty();
}

}  // namespace

Engine::Engine(asio::any_io_executor executor, Store& store, Node& node, const Clock& clock, EngineOptions options)
    : executor_(executor),
      store_(store),
      node_(node),
      clock_(clock),
      options_(options),
      deadlines_(executor),
      reconciles_(executor),
      retries_(executor),
      stopped_(executor) {}

Engine::~Engine() = default;

Task<> Engine::start() {
  CO_TRY(const auto unfinished, co_await store_.unfinished_operations());
  for (const Operation& operation : unfinished) {
    auto sandbox = co_await store_.find_any_sandbox(operation.sandbox);
    if (!sandbox && sandbox.error().kind != ErrorKind::not_found) co_return tl::unexpected(sandbox.error());
    Sandbox gone;
    gone.id = operation.sandbox;
    gone.tenant = operation.tenant;
    enqueue(operation, sandbox ? *sandbox : gone)->asked = true;
  }
  if (!unfinished.empty()) log::info("operations.resumed", {{"count", unfinished.size()}});
  for (auto loop : {&Engine::watch_node, &Engine::watch_deadlines, &Engine::watch_idle, &Engine::reconcile_loop, &Engine::prune_loop})
    spawn(executor_, (this->*loop)());
  co_return Result<>();
}

void Engine::stop() {
  stopping_ = true;
  stopped_.ring();
  deadlines_.ring();
  reconciles_.ring();
  retries_.ring();
  for (const auto& [id, live] : live_) live->changed.notify_all();  // whoever waits gets what there is
}

Result<> Engine::admit() const {
  if (live_.size() < options_.max_running + options_.max_pending) return {};
  return fail(ErrorKind::resource_exhausted, "too_many_operations", fmt::format("{} operations wait already", live_.size()),
              "wait for some to finish, then try again");
}

Task<Accepted> Engine::create(Sandbox sandbox, Operation operation, std::optional<Idempotency> keep) {
  CO_TRY_VOID(admit());
  CO_TRY(Accepted accepted, co_await store_.accept_create(std::move(sandbox), std::move(operation), std::move(keep)));
  if (!accepted.replay) enqueue(accepted.operation, accepted.sandbox);
  co_return accepted;
}

Task<Accepted> Engine::change(Operation operation, std::optional<Idempotency> keep) {
  if (operation.kind != OperationKind::remove) CO_TRY_VOID(admit());  // a delete gives room
  CO_TRY(Accepted accepted, co_await store_.accept_change(std::move(operation), std::move(keep)));
  if (accepted.replay || accepted.joined) co_return accepted;
  enqueue(accepted.operation, accepted.sandbox);
  if (accepted.operation.kind == OperationKind::remove)
    for (const auto& [id, live] : live_)
      if (live->operation.sandbox == accepted.sandbox.id && live->operation.kind != OperationKind::remove) request_end(live);
  co_return accepted;
}

Task<Accepted> Engine::fork(std::vector<Sandbox> children, Operation operation, std::optional<Idempotency> keep) {
  CO_TRY_VOID(admit());
  CO_TRY(Accepted accepted, co_await store_.accept_fork(std::move(children), std::move(operation), std::move(keep)));
  if (!accepted.replay) enqueue(accepted.operation, accepted.sandbox);
  co_return accepted;
}

Task<Operation> Engine::cancel(std::string tenant, std::string id) {
  const auto found = live_.find(id);
  if (found != live_.end() && found->second->operation.tenant == tenant && found->second->is_in_one_step())
    co_return fail(ErrorKind::conflict, "not_cancellable",
                   fmt::format("a {} that has begun cannot be taken back", to_string(found->second->operation.kind)),
                   "wait for it, then do the opposite");
  CO_TRY(Operation operation, co_await store_.request_cancel(tenant, id));
  const auto now = live_.find(id);
  if (now == live_.end()) co_return co_await store_.find_operation(tenant, id);
  request_end(now->second);
  co_return now->second->operation;
}

void Engine::request_end(const LivePtr& live) {
  if (live->operation.cancel_requested) return;
  live->operation.cancel_requested = true;
  live->changed.notify_all();
  retries_.ring();
  // Node gives a create up when it hears of the delete; the call under way then comes back.
  if (live->operation.kind == OperationKind::create && live->asked)
    spawn(executor_, take_away(live->operation.sandbox, live->operation.id));
}

Task<Operation> Engine::find(std::string tenant, std::string id) {
  const auto found = live_.find(id);
  if (found != live_.end() && found->second->operation.tenant == tenant) co_return found->second->operation;
  co_return co_await store_.find_operation(std::move(tenant), std::move(id));
}

Task<Operation> Engine::wait(std::string tenant, std::string id, milliseconds time, std::optional<OperationState> seen) {
  const auto found = live_.find(id);
  if (found == live_.end() || found->second->operation.tenant != tenant)
    co_return co_await store_.find_operation(std::move(tenant), std::move(id));
  const LivePtr live = found->second;
  const auto until = std::chrono::steady_clock::now() + time;
  while (!live->over && !stopping_ && (!seen || live->operation.state == *seen)) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !co_await live->changed.wait_for(left)) break;
  }
  co_return live->operation;
}

asio::awaitable<bool> Engine::wait_for_rest(std::string sandbox, milliseconds time) {
  const auto lane = lanes_.find(sandbox);
  if (lane == lanes_.end()) co_return false;
  const LivePtr live = lane->second.current ? lane->second.current : lane->second.waiting.empty() ? nullptr : lane->second.waiting.front();
  if (!live || (live->operation.kind != OperationKind::pause && live->operation.kind != OperationKind::suspend)) co_return false;
  const auto until = std::chrono::steady_clock::now() + time;
  while (!live->over && !stopping_) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !co_await live->changed.wait_for(left)) break;
  }
  co_return true;
}

Engine::Gauges Engine::gauges() const {
  Gauges out = gauges_;
  out.running = running_;
  out.pending = live_.size() - running_;
  return out;
}

Engine::LivePtr Engine::enqueue(const Operation& operation, const Sandbox& sandbox) {
  auto live = std::make_shared<Live>(executor_, operation, sandbox);
  live->accepted_us = clock_.monotonic_us();
  live_.emplace(operation.id, live);
  Lane& lane = lanes_[operation.sandbox];
  lane.waiting.push_back(live);
  if (!lane.current && !lane.queued) {
    lane.queued = true;
    ready_.push_back(operation.sandbox);
    pump();
  }
  return live;
}

void Engine::pump() {
  while (!stopping_ && running_ < options_.max_running && !ready_.empty()) {
    const std::string sandbox = std::move(ready_.front());
    ready_.pop_front();
    ++running_;
    Lane& lane = lanes_[sandbox];
    lane.queued = false;
    lane.current = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    // Posted: whoever asked has his answer before the work begins.
    asio::post(executor_, [this, sandbox] { spawn(executor_, run_lane(sandbox)); });
  }
}

// One operation of the lane; the next one queues up behind those of other sandboxes.
asio::awaitable<void> Engine::run_lane(std::string sandbox) {
  const OperationKind kind = lanes_[sandbox].current->operation.kind;
  co_await carry_out(lanes_[sandbox].current);
  --running_;
  Lane& lane = lanes_[sandbox];
  lane.current.reset();
  if (auto reason = std::exchange(lane.end_reason, std::nullopt)) {
    // What was told while another machine was being made may be the end of the one before: the inventory knows.
    if (kind == OperationKind::start || kind == OperationKind::restore)
      reconciles_.ring();
    else
      spawn(executor_, ended_by_itself(sandbox, *reason));
  }
  if (!lane.waiting.empty()) {
    lane.queued = true;
    ready_.push_back(sandbox);
  } else {
    lanes_.erase(sandbox);
  }
  pump();
}

asio::awaitable<void> Engine::carry_out(LivePtr live) {
  Operation& operation = live->operation;
  const std::int64_t began_us = clock_.monotonic_us();
  live->operation.spans.push_back({"queued", 0, began_us - live->accepted_us});
  Result<NodeDone> result = fail(ErrorKind::cancelled, "operation_cancelled", "the operation was cancelled before it began",
                                 "ask again if it is wanted after all");
  const bool give_up = operation.cancel_requested && operation.kind != OperationKind::remove;
  if (!give_up) {
    operation.state = OperationState::running;
    operation.started_ms = clock_.wall_ms();
    live->changed.notify_all();
    store_.claim_operation(operation.id, operation.started_ms);
    result = co_await ask_node(live);
  }
  if (stopping_ && !result && may_pass(result.error())) co_return;  // unfinished in the store: the next process goes on
  const bool create_failed = operation.kind == OperationKind::create && (!result || operation.cancel_requested);
  if (create_failed && live->asked) co_await take_away(operation.sandbox, operation.id);
  co_await record_end(live, judge(*live, std::move(result)));
}

// Asks until there is an answer, patience has run out, or the operation is to end.
Task<NodeDone> Engine::ask_node(LivePtr live) {
  const auto patience_us = std::chrono::duration_cast<std::chrono::microseconds>(options_.patience).count();
  milliseconds pause = kFirstPause;
  std::optional<std::int64_t> since;
  while (true) {
    live->called_us = clock_.monotonic_us();
    live->asked = true;
    auto result = co_await ask_once(*live);
    if (result || !may_pass(result.error())) co_return result;
    // What waited in the queue while node was away has waited for it as well.
    if (!since) since = node_.reachable() ? live->called_us : std::max(live->accepted_us, std::min(node_.down_since_us(), live->called_us));
    if (stopping_ || (live->operation.cancel_requested && live->operation.kind != OperationKind::remove)) co_return result;
    if (clock_.monotonic_us() - *since >= patience_us) {
      log::warn("operation.gave_up", {{"operation", live->operation.id}, {"error", result.error()}});
      co_return result;
    }
    (void)co_await retries_.signal.wait_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

Task<NodeDone> Engine::ask_once(const Live& live) {
  const Operation& operation = live.operation;
  switch (operation.kind) {
    case OperationKind::create: {
      auto kept = co_await store_.kept_settings(operation.sandbox);
      std::string own = kept ? std::move((*kept)[operation.sandbox]) : std::string();  // else the reconciliation brings it
      co_return co_await node_.create(live.sandbox, operation, std::move(own));
    }
    case OperationKind::remove:
      co_return co_await node_.remove(operation.sandbox, operation.id);
    case OperationKind::fork:
      co_return co_await ask_fork(operation);
    default:
      break;
  }
  // The others are told as they are named, with what was asked for.
  std::string verb(to_string(operation.kind));
  CO_TRY(json::object body, parse_json_object(operation.request.empty() ? "{}" : operation.request, 16 << 20));
  if (operation.kind == OperationKind::update) {
    CO_TRY(const SandboxUpdate update, decode_update(operation.request));
    body = node_part(update);
    if (policy_watch_.begins && !update.egress.empty()) CO_TRY_VOID(co_await policy_watch_.begins(operation));
  }
  body["operation"] = operation.id;
  co_return co_await node_.act(operation.sandbox, std::move(verb), std::move(body));
}

Outcome Engine::judge(const Live& live, Result<NodeDone> result) {
  Outcome outcome;
  outcome.spans = live.operation.spans;
  const bool create = live.operation.kind == OperationKind::create;
  if (live.operation.cancel_requested && live.operation.kind != OperationKind::remove && (create || !result)) {
    outcome.state = OperationState::cancelled;
    outcome.error = Error{ErrorKind::cancelled, "operation_cancelled", "the operation was cancelled", ""};
    if (create) outcome.sandbox_state = SandboxState::deleted;
    return outcome;
  }
  if (live.called_us > 0) outcome.spans.push_back({"node", live.called_us - live.accepted_us, clock_.monotonic_us() - live.called_us});
  if (!result) {
    outcome.state = OperationState::failed;
    outcome.error = std::move(result).error();
    if (create) outcome.sandbox_state = SandboxState::failed;
    return outcome;
  }
  for (Span& span : result->spans) {
    span.start_us += live.called_us - live.accepted_us;
    outcome.spans.push_back(std::move(span));
  }
  outcome.template_digest = result->template_digest;
  if (live.operation.kind == OperationKind::restore) {
    outcome.cpus = result->cpus;
    outcome.memory_mib = result->memory_mib;
  }
  outcome.sandbox_state = state_after(live.operation.kind);
  return outcome;
}

// The end counts when it is recorded. A store that refuses (a full disk) is asked again: the work is done and must be known.
asio::awaitable<void> Engine::record_end(LivePtr live, Outcome outcome) {
  const std::string id = live->operation.id;
  milliseconds pause = kFirstPause;
  Result<Finished> finished = co_await store_.finish_operation(id, outcome);
  while (!finished && finished.error().kind != ErrorKind::not_found && !stopping_) {
    log::error("operation.end_not_recorded", {{"operation", id}, {"error", finished.error()}});
    co_await sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(10'000));
    finished = co_await store_.finish_operation(id, outcome);
  }
  if (finished) {
    if (policy_watch_.recorded && changes_policy(live->operation)) co_await policy_watch_.recorded(finished->operation);
    live->operation = finished->operation;
    if (finished->sandbox && finished->sandbox->ends_ms > 0) deadlines_.ring();  // also when an update moved it
  }
  const auto& operation = live->operation;
  auto& count = operation.state == OperationState::succeeded ? gauges_.succeeded
                : operation.state == OperationState::failed  ? gauges_.failed
                                                             : gauges_.cancelled;
  ++count;
  log::info("operation.finished", {{"operation", id},
                                   {"sandbox", operation.sandbox},
                                   {"kind", to_string(operation.kind)},
                                   {"state", to_string(operation.state)},
                                   {"ms", (clock_.monotonic_us() - live->accepted_us) / 1000},
                                   {"error", operation.error ? describe(*operation.error) : std::string()}});
  live->over = true;
  live_.erase(id);
  live->changed.notify_all();
  // Node and store disagree about what is there.
  const bool passed_over = passed_over_.erase(operation.sandbox) > 0;
  if (passed_over || (operation.error && (operation.error->kind == ErrorKind::not_found || operation.error->kind == ErrorKind::conflict)))
    reconciles_.ring();
}

// Takes away what a create may have left at node. Where that fails the reconciliation does it.
asio::awaitable<void> Engine::take_away(std::string sandbox, std::string operation) {
  auto done = co_await node_.remove(sandbox, operation);
  if (done) co_return;
  log::warn("operation.remains", {{"operation", operation}, {"sandbox", sandbox}, {"error", done.error()}});
  reconciles_.ring();
}

}  // namespace space::control
