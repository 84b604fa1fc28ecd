// Carries operations out. Each is recorded before it starts (accept), given to node (which is idempotent by operation), and its
// end is recorded before anybody is told. So a kill at any moment leaves one of three things, and `start` goes on from each:
//   accepted, node never asked      → asked now
//   node asked, its answer unknown  → asked again, the same answer comes
//   node done, end not recorded     → the same
// Per sandbox one operation at a time, in the order in which they were accepted; different sandboxes side by side.
//
// Beside that it keeps store and node in agreement (reconcile; what the store never knew is taken up, adopt.h), ends sandboxes whose time
// has passed, and throws away what is old.
// Everything here belongs to one loop.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/async.h"
#include "base/clock.h"
#include "control/node.h"
#include "control/store.h"

namespace space::control {

struct EngineOptions {
  std::chrono::milliseconds patience{60'000};  // how long an operation waits for a node that does not answer
  std::size_t max_running = 64;
  std::size_t max_pending = 10'000;
  std::chrono::milliseconds reconcile_every{60'000};
  std::chrono::milliseconds prune_every{300'000};
  std::chrono::milliseconds idle_every{2'000};  // how often is looked for what nobody uses
  Retention retention;
};

class Engine {
 public:
  Engine(asio::any_io_executor executor, Store& store, Node& node, const Clock& clock, EngineOptions options);
  ~Engine();

  // Takes up what an earlier process left unfinished, then runs in the background until `stop`.
  Task<> start();
  // Starts nothing new and lets go of node's calls under way; the next start takes them up.
  void stop();

  // The store's verbs of the same names, followed by the work. too_many_operations when too much waits already.
  Task<Accepted> create(Sandbox sandbox, Operation operation, std::optional<Idempotency> keep);
  Task<Accepted> change(Operation operation, std::optional<Idempotency> keep);
  Task<Accepted> fork(std::vector<Sandbox> children, Operation operation, std::optional<Idempotency> keep);
  Task<Operation> cancel(std::string tenant, std::string id);
  // The store's verb; the clock is set anew.
  Task<Sandbox> set_deadline(std::string tenant, std::string id, std::int64_t ends_ms, bool only_later);
  // Asked about every sandbox whose time is over: true when it did something else about it than to delete it. At most one.
  void on_deadline(std::function<Task<bool>(Sandbox)> ask) { at_deadline_ = std::move(ask); }

  // Of updates with a policy, for whoever enforces it. `begins` before node is asked, in every process that goes on with it: when it
  // fails, the operation is tried again and at last fails. `recorded` when the end is in the store, whatever it was, and before
  // anybody who asks for the operation here is told that it is over.
  struct PolicyWatch {
    std::function<Task<>(const Operation&)> begins;
    std::function<asio::awaitable<void>(const Operation&)> recorded;
  };
  void on_policy(PolicyWatch watch) { policy_watch_ = std::move(watch); }

  // The operation as it is this moment. operation_not_found.
  Task<Operation> find(std::string tenant, std::string id);
  // Returns when the operation is over or changed from `seen`, at the latest after `time`.
  Task<Operation> wait(std::string tenant, std::string id, std::chrono::milliseconds time,
                       std::optional<OperationState> seen = std::nullopt);

  // Waits while a pause or suspend of this sandbox is under way, at most `time`. True when it did.
  asio::awaitable<bool> wait_for_rest(std::string sandbox, std::chrono::milliseconds time);

  struct Gauges {
    std::size_t running = 0, pending = 0;
    std::uint64_t succeeded = 0, failed = 0, cancelled = 0;
  };
  Gauges gauges() const;
  // Whether store and node have been in agreement since `start`: what the store does not know now is nobody's.
  bool reconciled() const { return reconciled_; }

 private:
  struct Live;  // an operation under way
  struct Lane;  // the operations of one sandbox
  using LivePtr = std::shared_ptr<Live>;

  Result<> admit() const;
  LivePtr enqueue(const Operation& operation, const Sandbox& sandbox);
  void pump();
  asio::awaitable<void> run_lane(std::string sandbox);
  asio::awaitable<void> carry_out(LivePtr live);
  Task<NodeDone> ask_node(LivePtr live);
  Task<NodeDone> ask_once(const Live& live);
  Task<NodeDone> ask_fork(Operation operation);
  Outcome judge(const Live& live, Result<NodeDone> result);
  asio::awaitable<void> record_end(LivePtr live, Outcome outcome);
  void request_end(const LivePtr& live);  // of an operation that was asked to end
  asio::awaitable<void> take_away(std::string sandbox, std::string operation);

  // engine_upkeep.cc
  asio::awaitable<void> watch_node();
  asio::awaitable<void> watch_deadlines();
  asio::awaitable<bool> spared(Sandbox sandbox);
  asio::awaitable<void> watch_idle();
  asio::awaitable<void> reconcile_loop();
  Task<> begin_limits_anew();
  asio::awaitable<void> prune_loop();
  Task<> reconcile();
  Task<> settle(const NodeSandbox& there, const std::unordered_map<std::string, Owned>& before,
                const std::unordered_map<std::string, Owned>& now);
  Task<> adopt(const NodeSandbox& there);
  Task<> take_away_orphan(const NodeSandbox& there);
  asio::awaitable<void> ended_by_itself(std::string sandbox, std::string reason);
  asio::awaitable<void> kept_by_itself(std::string sandbox, std::string snapshot);
  asio::awaitable<void> wake_volume(std::string sandbox);
  Task<> rest_for(const Sandbox& sandbox, OperationKind kind, std::string reason);
  Task<> remove_for(std::string tenant, std::string sandbox, std::string reason);

  asio::any_io_executor executor_;
  Store& store_;
  Node& node_;
  const Clock& clock_;
  EngineOptions options_;
  bool stopping_ = false, reconciled_ = false;
  bool took_up_ = false;  // sandboxes that the store did not know
  std::function<Task<bool>(Sandbox)> at_deadline_;
  PolicyWatch policy_watch_;

  std::unordered_map<std::string, LivePtr> live_;  // by operation
  std::unordered_map<std::string, Lane> lanes_;    // by sandbox
  std::deque<std::string> ready_;                  // sandboxes whose lane waits for a place
  std::size_t running_ = 0;
  Gauges gauges_;

  // A wake-up that comes while its loop is at work is not lost: the counter has moved on.
  struct Bell {
    explicit Bell(asio::any_io_executor executor) : signal(std::move(executor)) {}
    void ring() {
      ++rung;
      signal.notify_all();
    }
    std::uint64_t rung = 0;
    Signal signal;
  };
  Bell deadlines_, reconciles_, retries_, stopped_;
  std::unordered_set<std::string> passed_over_;  // ended at node, with an operation at work on them when the reconciliation came by
};

}  // namespace space::control
