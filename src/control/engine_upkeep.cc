// The engine's loops beside the operations: node's own events, time limits, agreement between store and node, retention.
#include "base/digest.h"
#include "base/log.h"
#include "base/random.h"
#include "control/adopt.h"
#include "control/backoff.h"
#include "control/engine.h"
#include "control/engine_state.h"

namespace space::control {
namespace {
using std::chrono::milliseconds;
}

asio::awaitable<void> Engine::watch_node() {
  milliseconds pause{50};
  while (!stopping_) {
    const auto connected = [this, &pause] {
      pause = milliseconds(50);
      retries_.ring();     // what waits for node need not wait longer
      reconciles_.ring();  // what happened meanwhile was told to nobody
    };
    const auto ended = [this](std::string sandbox, std::string reason) {
      spawn(executor_, ended_by_itself(std::move(sandbox), std::move(reason)));
    };
    const auto kept = [this](std::string sandbox, std::string snapshot) {
      spawn(executor_, kept_by_itself(std::move(sandbox), std::move(snapshot)));
    };
    const auto wanted = [this](std::string sandbox, std::string) { spawn(executor_, wake_volume(std::move(sandbox))); };
    auto result = co_await node_.follow(connected, ended, kept, wanted);
    if (stopping_) co_return;
    if (!result) log::debug("node.events_lost", {{"error", result.error()}});
    (void)co_await stopped_.signal.wait_for(pause);
    pause = std::min(pause * 2, milliseconds(1'000));
  }
}

asio::awaitable<void> Engine::kept_by_itself(std::string sandbox, std::string snapshot) {
  auto noted = co_await store_.note_snapshot(sandbox, std::move(snapshot));
  if (!noted) log::warn("sandbox.snapshot_not_told", {{"sandbox", sandbox}, {"error", noted.error()}});
}

// node asks again while it is wanted and does not run, so one that cannot be woken now is nobody's loss.
asio::awaitable<void> Engine::wake_volume(std::string id) {
  const auto sandbox = co_await store_.find_any_sandbox(id);
  if (!sandbox) co_return;
  for (const OperationKind kind : {OperationKind::wake, OperationKind::start}) {
    if (!may_begin(kind, sandbox->state)) continue;
    const auto lane = lanes_.find(id);
    if (lane != lanes_.end() && lane->second.current) co_return;  // something is under way
    auto woken = co_await rest_for(*sandbox, kind, "volume");
    if (!woken) log::debug("volume.not_woken", {{"sandbox", id}, {"error", woken.error()}});
    co_return;
  }
}

asio::awaitable<void> Engine::ended_by_itself(std::string sandbox, std::string reason) {
  if (reason.empty()) reason = "unknown";
  const auto lane = lanes_.find(sandbox);
  if (lane != lanes_.end() && lane->second.current) {
    lane->second.end_reason = reason;  // after the operation under way, which decides what there is to end
    co_return;
  }
  auto ended = co_await store_.end_sandbox(sandbox, reason);
  if (!ended)
    log::error("sandbox.end_not_recorded", {{"sandbox", sandbox}, {"error", ended.error()}});  // the next reconciliation sees it
  else if (*ended)
    log::warn("sandbox.ended", {{"sandbox", sandbox}, {"reason", reason}});
}

asio::awaitable<bool> Engine::spared(Sandbox sandbox) {
  if (!at_deadline_) co_return false;
  const std::string id = sandbox.id;
  auto done = co_await at_deadline_(std::move(sandbox));
  if (!done) log::warn("sandbox.deadline_failed", {{"sandbox", id}, {"error", done.error()}});
  co_return done.value_or(true);  // nobody deletes what was to be kept; it is asked about again
}

Task<Sandbox> Engine::set_deadline(std::string tenant, std::string id, std::int64_t ends_ms, bool only_later) {
  auto moved = co_await store_.set_deadline(std::move(tenant), std::move(id), ends_ms, only_later);
  deadlines_.ring();
  co_return moved;
}

// Not before node was asked what there is.
asio::awaitable<void> Engine::watch_deadlines() {
  constexpr std::int64_t kSoonest = 20, kStillDue = 250, kLongest = 3600'000;
  Backoff again(clock_);
  while (!stopping_ && !reconciled_) (void)co_await deadlines_.signal.wait_for(milliseconds(1'000));
  while (!stopping_) {
    const auto rung = deadlines_.rung;
    auto due = co_await store_.due_sandboxes(clock_.wall_ms());
    bool remain = !due;
    if (due) {
      std::unordered_set<std::string> ids;
      for (const Sandbox& sandbox : *due) ids.insert(sandbox.id);
      again.keep_only(ids);
      for (const Sandbox& sandbox : *due) {
        const bool kept = co_await spared(sandbox);
        remain = remain || kept || sandbox.rest.suspend_at_limit;
        if (kept) continue;
        if (sandbox.rest.suspend_at_limit) {
          if (!again.begin(sandbox.id)) continue;
          auto rested = co_await rest_for(sandbox, OperationKind::suspend, "time_limit");
          if (!rested) log::warn("sandbox.not_suspended_in_time", {{"sandbox", sandbox.id}, {"error", rested.error()}});
          continue;
        }
        if (auto removed = co_await remove_for(sandbox.tenant, sandbox.id, "time_limit"); !removed) {
          log::error("sandbox.not_deleted_in_time", {{"sandbox", sandbox.id}, {"error", removed.error()}});
          remain = true;
        }
      }
    }
    const auto next = co_await store_.next_deadline();
    if (stopping_) co_return;
    if (rung != deadlines_.rung) continue;
    // What is suspended, or could not be deleted, stays due: that is looked at again after a moment, and not without a pause. The wall
    // clock may jump, so look at least hourly.
    const std::int64_t left = next && *next > 0
                                  ? std::clamp<std::int64_t>(*next - clock_.wall_ms(), remain ? kStillDue : kSoonest, kLongest)
                                  : (next ? kLongest : 1'000);
    (void)co_await deadlines_.signal.wait_for(milliseconds(left));
  }
}

// Puts to rest what nobody uses, as its policy says. Node tells for how long nobody has. What cannot rest now, as when the store is below
// its low-water mark, is asked for less and less often, until somebody uses it.
asio::awaitable<void> Engine::watch_idle() {
  Backoff again(clock_);
  while (!stopping_) {
    (void)co_await stopped_.signal.wait_for(options_.idle_every);
    if (stopping_ || !node_.reachable()) continue;
    const auto wanted = co_await store_.resting_sandboxes();
    if (!wanted) continue;
    if (wanted->empty()) {
      again.keep_only({});
      continue;
    }
    const auto inventory = co_await node_.inventory();
    if (!inventory) continue;
    std::unordered_map<std::string, const NodeSandbox*> there;
    for (const NodeSandbox& one : *inventory) there.emplace(one.id, &one);
    std::unordered_set<std::string> idle;
    for (const Sandbox& sandbox : *wanted) {
      const auto found = there.find(sandbox.id);
      if (found == there.end()) continue;
      const std::int64_t idle_s = found->second->unused_ms(sandbox.rest.idle_cpu_percent) / 1000;
      const bool suspend = sandbox.rest.idle_suspend_s > 0 && idle_s >= sandbox.rest.idle_suspend_s;
      const bool pause = sandbox.rest.idle_pause_s > 0 && idle_s >= sandbox.rest.idle_pause_s && sandbox.state == SandboxState::running;
      if (!suspend && !pause) continue;
      const OperationKind kind = suspend ? OperationKind::suspend : OperationKind::pause;
      const std::string what = sandbox.id + " " + std::string(to_string(kind));
      idle.insert(what);
      if (!again.begin(what)) continue;
      auto rested = co_await rest_for(sandbox, kind, "idle");
      if (rested) continue;
      again.forget(what);  // something else is under way, and no operation came of it
      log::debug("sandbox.not_rested", {{"sandbox", sandbox.id}, {"error", rested.error()}});
    }
    again.keep_only(idle);
  }
}

Task<> Engine::rest_for(const Sandbox& sandbox, OperationKind kind, std::string reason) {
  Operation operation;
  operation.id = new_id();
  operation.tenant = sandbox.tenant;
  operation.sandbox = sandbox.id;
  operation.kind = kind;
  operation.reason = std::move(reason);
  operation.created_ms = clock_.wall_ms();
  CO_TRY_VOID(co_await change(std::move(operation), std::nullopt));
  co_return Result<>();
}

Task<> Engine::remove_for(std::string tenant, std::string sandbox, std::string reason) {
  Operation operation;
  operation.id = new_id();
  operation.tenant = std::move(tenant);
  operation.sandbox = std::move(sandbox);
  operation.kind = OperationKind::remove;
  operation.reason = std::move(reason);
  operation.created_ms = clock_.wall_ms();
  auto accepted = co_await change(std::move(operation), std::nullopt);
  if (!accepted && accepted.error().kind != ErrorKind::not_found) co_return tl::unexpected(accepted.error());
  co_return Result<>();
}

asio::awaitable<void> Engine::reconcile_loop() {
  while (!stopping_) {
    const auto rung = reconciles_.rung;
    if (node_.reachable()) {
      auto done = co_await reconcile();
      if (done && !reconciled_ && took_up_) done = co_await begin_limits_anew();
      if (!done) log::warn("reconcile.failed", {{"error", done.error()}});
      if (done && !reconciled_) {
        reconciled_ = true;
        deadlines_.ring();
        stopped_.signal.notify_all();
      }
    }
    if (stopping_) co_return;
    if (rung != reconciles_.rung) {
      co_await sleep_for(milliseconds(100));  // not in a storm of wishes
      continue;
    }
    (void)co_await reconciles_.signal.wait_for(options_.reconcile_every);
  }
}

// The store is read before and after node is asked, so that what is made or deleted meanwhile is not taken for a difference: a
// sandbox is lost only if the store had it before the inventory and still has it the same way; the store does not know one only if it
// does not have it after.
Task<> Engine::reconcile() {
  const auto by_id = [](std::vector<Owned> list) {
    std::unordered_map<std::string, Owned> out;
    for (Owned& owned : list) out.emplace(owned.id, owned);
    return out;
  };
  CO_TRY(auto first, co_await store_.owned_sandboxes());
  const auto before = by_id(std::move(first));
  CO_TRY(const auto inventory, co_await node_.inventory());
  CO_TRY(auto second, co_await store_.owned_sandboxes());
  const auto now = by_id(std::move(second));
  CO_TRY(auto kept, co_await store_.kept_settings(""));

  std::unordered_map<std::string, bool> there;
  std::optional<Error> unsettled;  // of the first; those behind it have nothing to do with it
  for (const NodeSandbox& sandbox : inventory) {
    there.emplace(sandbox.id, true);
    if (auto settled = co_await settle(sandbox, before, now); !settled) {
      if (!node_.reachable()) co_return settled;
      log::warn("reconcile.not_settled", {{"sandbox", sandbox.id}, {"error", settled.error()}});
      if (!unsettled) unsettled = std::move(settled).error();
      continue;
    }
    const auto ours = now.find(sandbox.id);
    const auto text = kept.find(sandbox.id);
    if (ours == now.end() || ours->second.busy || text == kept.end()) continue;
    if (sandbox.kept_digest == (text->second.empty() ? std::string() : digest_name(sha256(text->second)))) continue;
    if (auto told = co_await node_.keep(sandbox.id, text->second); !told)
      log::debug("reconcile.not_kept", {{"sandbox", sandbox.id}, {"error", told.error()}});
  }
  for (const auto& [id, owned] : now) {
    if (owned.busy) continue;
    if (owned.state == SandboxState::deleting) {  // a delete that failed: it is still wanted
      CO_TRY_VOID(co_await remove_for(owned.tenant, id, "requested"));
      continue;
    }
    const auto earlier = before.find(id);
    const bool settled = earlier != before.end() && !earlier->second.busy && earlier->second.state == owned.state;
    if (settled && can_move(owned.state, SandboxState::ended) && !there.contains(id)) co_await ended_by_itself(id, "lost");
  }
  if (unsettled) co_return fail(std::move(*unsettled));
  co_return Result<>();
}

Task<> Engine::settle(const NodeSandbox& there, const std::unordered_map<std::string, Owned>& before,
                      const std::unordered_map<std::string, Owned>& now) {
  const auto ours = now.find(there.id);
  if (ours == now.end()) co_return co_await adopt(there);
  // What a create that failed has left. One that ended may have come back, as by a start whose answer was lost, and its disk is somebody's.
  if (!ours->second.busy && ours->second.state == SandboxState::failed) co_return co_await take_away_orphan(there);
  if (ours->second.busy) {
    if (there.state != "ended") co_return Result<>();
    if (lanes_.contains(there.id))
      passed_over_.insert(there.id);
    else
      reconciles_.ring();  // it came to its end meanwhile
    co_return Result<>();
  }
  if (there.state == "ended" && can_move(ours->second.state, SandboxState::ended)) {
    co_await ended_by_itself(there.id, there.end_reason);
    co_return Result<>();
  }
  const auto state = sandbox_state(there.state);
  const auto earlier = before.find(there.id);
  const bool settled = earlier != before.end() && !earlier->second.busy && earlier->second.state == ours->second.state;
  if (settled && state && *state != ours->second.state) {
    CO_TRY(const bool corrected, co_await store_.correct_state(there.id, *state));
    if (corrected) log::warn("reconcile.corrected", {{"sandbox", there.id}, {"state", there.state}});
  }
  co_return Result<>();
}

// One that cannot be taken away, as by a VMM that hangs, is tried again by each reconciliation. It holds up no other, nor what waits for
// the first of them: time limits.
Task<> Engine::take_away_orphan(const NodeSandbox& there) {
  log::warn("reconcile.orphan", {{"sandbox", there.id}, {"state", there.state}});
  auto removed = co_await node_.remove(there.id, new_id());
  if (!removed && !node_.reachable()) co_return tl::unexpected(removed.error());
  if (!removed) log::warn("reconcile.orphan_remains", {{"sandbox", there.id}, {"error", removed.error()}});
  co_return Result<>();
}

// One that was deleted goes. Any other is somebody's, and the database is not what it was: lost, or an older one.
Task<> Engine::adopt(const NodeSandbox& there) {
  if (there.state == "creating" || there.state == "deleting") co_return Result<>();  // on its way; the next look sees what became of it
  auto found = co_await node_.look(there.id);
  if (!found && found.error().kind == ErrorKind::not_found) co_return Result<>();
  if (!found) co_return tl::unexpected(found.error());
  Sandbox& sandbox = found->sandbox;
  if (sandbox.state == SandboxState::creating || sandbox.state == SandboxState::deleting) co_return Result<>();
  if (sandbox.tenant.empty()) sandbox.tenant = kDefaultTenant;  // its record cannot be read: whoever keeps the host sees to it
  auto kept = decode_kept(found->kept);
  if (!kept) log::warn("reconcile.settings_unreadable", {{"sandbox", there.id}, {"error", kept.error()}});
  Kept settings = kept ? std::move(*kept) : Kept();
  CO_TRY(const bool adopted, co_await store_.adopt_sandbox(sandbox, std::move(settings)));
  if (!adopted) co_return co_await take_away_orphan(there);
  took_up_ = true;
  log::warn("reconcile.adopted", {{"sandbox", there.id}, {"tenant", sandbox.tenant}, {"state", there.state}});
  deadlines_.ring();
  CO_TRY(const auto keyless, co_await store_.tenants_without_key());
  if (!keyless.contains(sandbox.tenant)) co_return Result<>();
  // Nobody can reach it, or end it: it keeps what it has, and takes no processor until somebody can.
  log::warn("reconcile.tenant_without_key", {{"sandbox", there.id}, {"tenant", sandbox.tenant}, {"next", "space key create --tenant"}});
  if (sandbox.state != SandboxState::running) co_return Result<>();
  if (auto paused = co_await rest_for(sandbox, OperationKind::pause, "tenant_without_key"); !paused)
    log::warn("sandbox.not_rested", {{"sandbox", there.id}, {"error", paused.error()}});
  co_return Result<>();
}

// The database is older than what node has: it does not know of ends that were moved since, and what it takes for due may not be. Nor
// may what it takes for due in a moment.
Task<> Engine::begin_limits_anew() {
  const std::int64_t now_ms = clock_.wall_ms();
  for (bool moved = true; moved;) {  // the store gives so many at a time
    moved = false;
    CO_TRY(const auto due, co_await store_.due_sandboxes(now_ms + kLeastAnewMs - 1));
    for (const Sandbox& sandbox : due) {
      const std::int64_t ends_ms = now_ms + std::max(sandbox.time_limit_s * 1000, kLeastAnewMs);
      const auto done = co_await store_.set_deadline(sandbox.tenant, sandbox.id, ends_ms, true);
      if (!done && done.error().kind != ErrorKind::not_found && done.error().kind != ErrorKind::conflict) co_return fail(done.error());
      if (!done) continue;  // it went, or went to rest, meanwhile
      moved = true;
      log::warn("reconcile.limit_begins_anew", {{"sandbox", sandbox.id}, {"tenant", sandbox.tenant}});
    }
  }
  co_return Result<>();
}

// Nothing goes for its age before node was asked what there is: an older database calls things over that were started again.
asio::awaitable<void> Engine::prune_loop() {
  while (!stopping_ && !reconciled_) (void)co_await stopped_.signal.wait_for(milliseconds(1'000));
  while (!stopping_) {
    auto old = co_await store_.old_remains(clock_.wall_ms() - options_.retention.remains_ms);
    if (old)
      for (const Sandbox& sandbox : *old)
        if (auto removed = co_await remove_for(sandbox.tenant, sandbox.id, "expired"); !removed)
          log::warn("remains.not_deleted", {{"sandbox", sandbox.id}, {"error", removed.error()}});
    auto pruned = co_await store_.prune(options_.retention);
    if (!pruned) log::error("store.prune_failed", {{"error", pruned.error()}});
    if (stopping_) co_return;
    (void)co_await stopped_.signal.wait_for(options_.prune_every);
  }
}

}  // namespace space::control
