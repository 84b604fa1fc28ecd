#include "control/engine.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"
#include "control/backoff.h"
#include "control/fake_node.h"
#include "control/sqlite_store.h"
#include "control/testing.h"
#include "control/update.h"

namespace space::control {
namespace {

using std::chrono::milliseconds;
using testing::FakeNode;

// Node stays; the process of store and engine comes and goes, as after kill -9.
class EngineTest : public ::testing::Test {
 protected:
  EngineTest()
      : folder_(std::move(*TempDir::make(std::filesystem::temp_directory_path(), "space-engine-"))),
        fake_(fake_loop_.get_executor(), socket()) {
    options_.patience = milliseconds(400);
    options_.reconcile_every = milliseconds(50);
    fake_.up();
    begin();
  }
  ~EngineTest() override { kill(); }

  std::string socket() const { return (folder_.path() / "node.sock").string(); }

  struct Process {
    Process(const std::filesystem::path& database, const std::string& socket, const Clock& clock, EngineOptions options)
        : store(std::move(*open_sqlite_store(database, loop.get_executor(), clock))),
          node(loop.get_executor(), socket, clock),
          engine(loop.get_executor(), *store, node, clock, options) {}
    asio::io_context loop;
    std::unique_ptr<Store> store;
    Node node;
    Engine engine;
  };

  void begin() {
    process_ = std::make_unique<Process>(folder_.path() / "space.db", socket(), *clock_, options_);
    ASSERT_TRUE(drive(process_->loop, process_->engine.start()));
  }
  // Its coroutines end where they stand.
  void kill() { process_.reset(); }
  void restart() {
    kill();
    begin();
  }
  // An empty one in its place, with a key of the host's tenant, or none.
  void forget_database(bool another = true) {
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder_.path() / (std::string("space.db") + end));
    if (!another) return;
    asio::io_context loop;
    const auto store = std::move(*open_sqlite_store(folder_.path() / "space.db", loop.get_executor(), system_clock()));
    Key key;
    key.id = new_id();
    key.tenant = "default";
    key.hash = "hash";
    ASSERT_TRUE(testing::run(loop, store->put_key(key)));
  }
  // One turn of both loops.
  void turn() {
    std::size_t done = 0;
    for (asio::io_context* loop : {&fake_loop_, process_ ? &process_->loop : &fake_loop_}) {
      loop->restart();
      done += loop->poll();
    }
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void spin(milliseconds time) {
    for (const auto until = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < until;) turn();
  }
  template <class T>
  Result<T> drive(asio::io_context& loop, Task<T> task) {
    std::optional<Result<T>> out;
    asio::co_spawn(loop, std::move(task), [&](std::exception_ptr, Result<T> result) { out = std::move(result); });
    while (!out) turn();
    return std::move(*out);
  }
  void node_down() {
    (void)drive(fake_loop_, [](FakeNode& fake) -> Task<> {
      co_await fake.down();
      co_return Result<>();
    }(fake_));
  }
  template <class F>
  bool eventually(F condition) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
         !condition() && std::chrono::steady_clock::now() < until;)
      turn();
    return condition();
  }
  template <class T>
  T must(Task<T> task) {
    auto result = drive(process_->loop, std::move(task));
    if (!result) ADD_FAILURE() << describe(result.error());
    if constexpr (!std::is_void_v<T>) return result ? std::move(*result) : T{};
  }
  template <class T>
  std::string code(Task<T> task) {
    auto result = drive(process_->loop, std::move(task));
    return result ? "" : result.error().code;
  }

  Operation operation(OperationKind kind, const std::string& sandbox) {
    Operation out;
    out.id = new_id();
    out.tenant = "default";
    out.sandbox = sandbox;
    out.kind = kind;
    out.reason = kind == OperationKind::remove ? "requested" : "";
    out.created_ms = system_clock().wall_ms();
    if (kind == OperationKind::create) out.request = R"({"env":{"A":"1"}})";
    return out;
  }
  Sandbox sandbox(std::int64_t limit_s = 0) {
    Sandbox out;
    out.id = new_id();
    out.tenant = "default";
    out.template_reference = "base";
    out.time_limit_s = limit_s;
    out.created_ms = system_clock().wall_ms();
    return out;
  }
  Accepted create(std::int64_t limit_s = 0) {
    Sandbox box = sandbox(limit_s);
    Operation op = operation(OperationKind::create, box.id);
    return must(engine().create(box, op, std::nullopt));
  }
  Accepted change(OperationKind kind, const std::string& id) { return must(engine().change(operation(kind, id), std::nullopt)); }
  Operation wait(const std::string& id, milliseconds time = milliseconds(5'000)) { return must(engine().wait("default", id, time)); }
  // One with this policy of rest, on a clock that the test moves; whatever node is asked for from now on, it has no room.
  std::string resting(const RestPolicy& rest, std::int64_t limit_s = 0) {
    clock_ = &manual_;
    options_.idle_every = milliseconds(5);
    restart();
    Sandbox box = sandbox(limit_s);
    box.rest = rest;
    fake_.fail_with.reset();
    const Accepted accepted = must(engine().create(box, operation(OperationKind::create, box.id), std::nullopt));
    EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
    fake_.fail_with = Error{ErrorKind::resource_exhausted, "store_low_water", "the store is full", "free some"};
    return accepted.sandbox.id;
  }
  // After the first try, which was just now: when the others come, in seconds.
  void expect_tries_after(std::initializer_list<int> pauses) {
    for (const int pause : pauses) {
      const std::size_t before = fake_.count("POST");
      spin(milliseconds(60));
      manual_.advance(std::chrono::seconds(pause) - milliseconds(1));
      spin(milliseconds(60));
      EXPECT_EQ(fake_.count("POST"), before) << "not before " << pause << " s";
      manual_.advance(milliseconds(1));
      EXPECT_TRUE(eventually([&] { return fake_.count("POST") == before + 1; })) << pause;
    }
  }
  std::string running() {
    const Accepted accepted = create();
    EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
    return accepted.sandbox.id;
  }
  SandboxState state(const std::string& id) { return must(store().find_sandbox("default", id)).state; }
  bool gone(const std::string& id) { return code(store().find_sandbox("default", id)) == "sandbox_not_found"; }
  Engine& engine() { return process_->engine; }
  Store& store() { return *process_->store; }

  asio::io_context fake_loop_;
  TempDir folder_;
  FakeNode fake_;
  EngineOptions options_;
  ManualClock manual_;  // for those that say so, before a restart
  const Clock* clock_ = &system_clock();
  std::unique_ptr<Process> process_;
};

TEST_F(EngineTest, CreatesPausesResumesAndDeletes) {
  const Accepted accepted = create();
  EXPECT_EQ(accepted.operation.state, OperationState::pending);
  const Operation done = wait(accepted.operation.id);
  EXPECT_EQ(done.state, OperationState::succeeded);
  std::vector<std::string> names;
  for (const Span& span : done.spans) names.push_back(span.name);
  EXPECT_EQ(names, (std::vector<std::string>{"queued", "node", "load"}));
  EXPECT_EQ(done.spans[2].start_us, done.spans[1].start_us + 10) << "node's times are moved to ours";
  const std::string id = accepted.sandbox.id;
  EXPECT_EQ(state(id), SandboxState::running);
  EXPECT_EQ(fake_.boxes[id].request.at("env").as_object().at("A").as_string(), "1");
  EXPECT_EQ(wait(change(OperationKind::pause, id).operation.id).state, OperationState::succeeded);
  EXPECT_EQ(state(id), SandboxState::paused);
  EXPECT_EQ(wait(change(OperationKind::resume, id).operation.id).state, OperationState::succeeded);
  EXPECT_EQ(state(id), SandboxState::running);
  EXPECT_EQ(wait(change(OperationKind::remove, id).operation.id).state, OperationState::succeeded);
  EXPECT_TRUE(gone(id));
  EXPECT_TRUE(fake_.boxes.empty());
  EXPECT_EQ(code(engine().change(operation(OperationKind::remove, id), std::nullopt)), "sandbox_not_found");
}

TEST_F(EngineTest, WaitingIsBounded) {
  fake_.hold = true;
  const Accepted accepted = create();
  EXPECT_EQ(wait(accepted.operation.id, milliseconds(30)).state, OperationState::running);
  fake_.release();
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
}

TEST_F(EngineTest, KilledBetweenAcceptAndNode) {
  Sandbox box = sandbox();
  const Operation op = operation(OperationKind::create, box.id);
  must(store().accept_create(box, op, std::nullopt));  // the engine never hears of it
  restart();
  EXPECT_EQ(wait(op.id).state, OperationState::succeeded);
  EXPECT_EQ(state(box.id), SandboxState::running);
  EXPECT_EQ(fake_.count("PUT"), 1u);
}

TEST_F(EngineTest, KilledWhileNodeWorks) {
  fake_.hold = true;
  const Accepted accepted = create();
  ASSERT_TRUE(eventually([&] { return fake_.count("PUT") == 1; }));
  kill();
  fake_.release();
  begin();
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
  EXPECT_EQ(fake_.boxes.size(), 1u);
  EXPECT_EQ(state(accepted.sandbox.id), SandboxState::running);
}

TEST_F(EngineTest, KilledBetweenNodesAnswerAndTheEnd) {
  for (const OperationKind kind : {OperationKind::create, OperationKind::pause, OperationKind::resume, OperationKind::remove}) {
    // Node did it, the store does not know: the operation is still unfinished there.
    std::string id;
    Operation op;
    if (kind == OperationKind::create) {
      Sandbox box = sandbox();
      id = box.id;
      op = operation(kind, id);
      must(store().accept_create(box, op, std::nullopt));
      fake_.boxes[id] = {"default", "running", op.id, {}};
    } else {
      id = running();
      if (kind == OperationKind::resume) wait(change(OperationKind::pause, id).operation.id);
      op = operation(kind, id);
      must(store().accept_change(op, std::nullopt));
      if (kind == OperationKind::remove)
        fake_.boxes.erase(id);
      else
        fake_.boxes[id].state = kind == OperationKind::pause ? "paused" : "running";
    }
    restart();
    EXPECT_EQ(wait(op.id).state, OperationState::succeeded) << to_string(kind);
    if (kind == OperationKind::remove)
      EXPECT_TRUE(gone(id));
    else
      EXPECT_EQ(state(id), kind == OperationKind::pause ? SandboxState::paused : SandboxState::running);
  }
}

TEST_F(EngineTest, AnAnswerThatBreaksOffIsAskedForAgain) {
  fake_.drop_answers = true;
  const Accepted accepted = create();
  ASSERT_TRUE(eventually([&] { return fake_.count("PUT") >= 1; }));
  fake_.drop_answers = false;
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
  EXPECT_EQ(fake_.boxes.size(), 1u);
}

TEST_F(EngineTest, OperationsWaitForANodeThatComesBack) {
  node_down();
  const Accepted accepted = create();
  spin(milliseconds(100));
  EXPECT_EQ(must(engine().find("default", accepted.operation.id)).state, OperationState::running);
  fake_.up();
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
}

TEST_F(EngineTest, PatienceEnds) {
  node_down();
  const Accepted accepted = create();
  const Operation failed = wait(accepted.operation.id);
  EXPECT_EQ(failed.state, OperationState::failed);
  EXPECT_EQ(failed.error->code, "node_unavailable");
  EXPECT_FALSE(failed.error->next.empty());
  EXPECT_EQ(state(accepted.sandbox.id), SandboxState::failed);
  // It may have reached node for all we know; when node is back, what nobody owns is taken away.
  fake_.boxes[accepted.sandbox.id] = {"default", "running", accepted.operation.id, {}};
  fake_.up();
  EXPECT_TRUE(eventually([&] { return fake_.boxes.empty(); }));
}

TEST_F(EngineTest, ADeleteThatFailedIsDoneWhenNodeIsBack) {
  const std::string id = running();
  node_down();
  EXPECT_EQ(wait(change(OperationKind::remove, id).operation.id).state, OperationState::failed);
  EXPECT_EQ(state(id), SandboxState::deleting);
  fake_.up();
  EXPECT_TRUE(eventually([&] { return gone(id) && fake_.boxes.empty(); }));
}

TEST_F(EngineTest, NodesErrorIsTheOperations) {
  fake_.fail_with = Error{ErrorKind::resource_exhausted, "node_full", "the node is full", "delete some"};
  const Accepted accepted = create();
  const Operation failed = wait(accepted.operation.id);
  EXPECT_EQ(failed.state, OperationState::failed);
  EXPECT_EQ(failed.error->code, "node_full");
  EXPECT_EQ(failed.error->kind, ErrorKind::resource_exhausted);
  fake_.fail_with.reset();
  EXPECT_EQ(wait(change(OperationKind::remove, accepted.sandbox.id).operation.id).state, OperationState::succeeded);
}

TEST_F(EngineTest, CancellingACreateTakesItAway) {
  fake_.hold_before = true;
  const Accepted accepted = create();
  ASSERT_TRUE(eventually([&] { return fake_.count("PUT") == 1; }));
  must(engine().cancel("default", accepted.operation.id));
  const Operation ended = wait(accepted.operation.id);
  EXPECT_EQ(ended.state, OperationState::cancelled);
  EXPECT_TRUE(gone(accepted.sandbox.id));
  EXPECT_TRUE(fake_.boxes.empty());
  EXPECT_EQ(code(engine().cancel("default", accepted.operation.id)), "operation_finished");
}

TEST_F(EngineTest, CancellingTooLateStillTakesItAway) {
  fake_.hold = true;
  const Accepted accepted = create();
  ASSERT_TRUE(eventually([&] { return fake_.boxes.size() == 1; }));
  must(engine().cancel("default", accepted.operation.id));
  fake_.release();
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::cancelled);
  EXPECT_TRUE(fake_.boxes.empty());
  EXPECT_TRUE(gone(accepted.sandbox.id));
}

TEST_F(EngineTest, DeletingWhileCreatingEndsBoth) {
  fake_.hold_before = true;
  const Accepted accepted = create();
  ASSERT_TRUE(eventually([&] { return fake_.count("PUT") == 1; }));
  const Accepted removal = change(OperationKind::remove, accepted.sandbox.id);
  EXPECT_EQ(change(OperationKind::remove, accepted.sandbox.id).operation.id, removal.operation.id) << "a second delete joins";
  EXPECT_EQ(wait(removal.operation.id).state, OperationState::succeeded);
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::cancelled);
  EXPECT_TRUE(fake_.boxes.empty());
  EXPECT_TRUE(gone(accepted.sandbox.id));
}

TEST_F(EngineTest, KilledWhileDeletingWhileCreating) {
  fake_.hold_before = true;
  const Accepted accepted = create();
  ASSERT_TRUE(eventually([&] { return fake_.count("PUT") == 1; }));
  const Operation removal = operation(OperationKind::remove, accepted.sandbox.id);
  must(store().accept_change(removal, std::nullopt));
  restart();
  EXPECT_EQ(wait(removal.id).state, OperationState::succeeded);
  EXPECT_EQ(wait(accepted.operation.id).state, OperationState::cancelled);
  EXPECT_TRUE(eventually([&] { return fake_.boxes.empty(); }));
  EXPECT_TRUE(gone(accepted.sandbox.id));
}

TEST_F(EngineTest, ASandboxThatEndsByItselfIsEnded) {
  const std::string id = running();
  ASSERT_TRUE(eventually([&] { return process_->node.reachable(); }));
  spin(milliseconds(20));
  fake_.end(id, "vmm_exited");
  EXPECT_TRUE(eventually([&] { return state(id) == SandboxState::ended; }));
  EXPECT_EQ(must(store().find_sandbox("default", id)).end_reason, "vmm_exited");
  EXPECT_EQ(code(engine().change(operation(OperationKind::pause, id), std::nullopt)), "sandbox_ended");
  const auto events = must(store().events_after("default", 0, 100));
  EXPECT_EQ(events.back().type, "sandbox.ended");
  EXPECT_EQ(wait(change(OperationKind::remove, id).operation.id).state, OperationState::succeeded);
}

TEST_F(EngineTest, WhatHappenedWhileNobodyListenedIsFound) {
  const std::string ended = running(), lost = running(), paused = running(), kept = running();
  kill();
  fake_.end(ended, "out_of_memory", false);
  fake_.boxes.erase(lost);
  fake_.boxes[paused].state = "paused";
  begin();
  EXPECT_TRUE(eventually(
      [&] { return state(ended) == SandboxState::ended && state(lost) == SandboxState::ended && state(paused) == SandboxState::paused; }));
  EXPECT_EQ(must(store().find_sandbox("default", lost)).end_reason, "lost");
  EXPECT_EQ(must(store().find_sandbox("default", ended)).end_reason, "out_of_memory");
  EXPECT_EQ(state(kept), SandboxState::running);
  EXPECT_TRUE(fake_.boxes.contains(kept));
}

TEST_F(EngineTest, WhatALostDatabaseKnewIsTakenUp) {
  Sandbox box = sandbox(3600), theirs = sandbox();
  box.metadata = {{"project", "demo"}};
  box.rest.idle_pause_s = 60;
  theirs.tenant = "acme";
  must(store().put_settings(box.id, R"({"secure":true})"));
  const Operation op = must(engine().create(box, operation(OperationKind::create, box.id), std::nullopt)).operation;
  Operation other = operation(OperationKind::create, theirs.id);
  other.tenant = "acme";
  must(engine().create(theirs, other, std::nullopt));
  EXPECT_EQ(wait(op.id).state, OperationState::succeeded);
  EXPECT_EQ(must(engine().wait("acme", other.id, milliseconds(5'000))).state, OperationState::succeeded);
  EXPECT_NE(fake_.boxes[box.id].kept.find("secure"), std::string::npos) << "from its create on";
  must(store().set_port("default", box.id, 8080, true));
  ASSERT_TRUE(eventually([&] { return fake_.boxes[box.id].kept.find("8080") != std::string::npos; })) << "what changed since is brought";

  kill();
  forget_database();
  begin();
  ASSERT_TRUE(eventually([&] { return !gone(box.id); }));
  const Sandbox back = must(store().find_sandbox("default", box.id));
  EXPECT_EQ(back.state, SandboxState::running);
  EXPECT_EQ(back.metadata, box.metadata);
  EXPECT_EQ(back.rest, box.rest);
  EXPECT_EQ(back.time_limit_s, 3600);
  EXPECT_GT(back.ends_ms, system_clock().wall_ms() + 3'500'000) << "a limit begins anew";
  EXPECT_EQ(back.template_digest, "sha256:aa");
  EXPECT_EQ(back.memory_mib, 768) << "node's";
  EXPECT_EQ(back.created_ms, 1'000'000);
  EXPECT_EQ(must(store().find_settings(box.id)), R"({"secure":true})");
  EXPECT_EQ(must(store().public_ports("default", box.id)), std::vector<std::uint16_t>{8080});
  // Whose tenant has no key any more rests, and is there.
  EXPECT_TRUE(eventually([&] {
    const auto found = drive(process_->loop, store().find_any_sandbox(theirs.id));
    return found && found->state == SandboxState::paused;
  }));
  EXPECT_EQ(must(store().tenants_without_key()), (std::map<std::string, std::int64_t>{{"acme", 1}}));
  EXPECT_EQ(fake_.count("DELETE"), 0u);
  EXPECT_TRUE(eventually([&] { return engine().reconciled(); }));

  EXPECT_EQ(wait(change(OperationKind::remove, box.id).operation.id).state, OperationState::succeeded);
  restart();
  spin(milliseconds(150));
  EXPECT_TRUE(gone(box.id));
}

TEST_F(EngineTest, AnOlderDatabaseTakesUpWhatCameLaterAndNothingThatWasDeleted) {
  const std::string before = running(), deleted = running();
  EXPECT_EQ(wait(change(OperationKind::remove, deleted).operation.id).state, OperationState::succeeded);
  kill();
  const auto copy = [&](const std::string& from, const std::string& to) {
    for (const std::string end : {"", "-wal", "-shm"})
      if (std::filesystem::exists(folder_.path() / (from + end)))
        std::filesystem::copy_file(folder_.path() / (from + end), folder_.path() / (to + end));
  };
  copy("space.db", "older.db");
  begin();
  const std::string after = running();
  kill();
  forget_database(false);
  copy("older.db", "space.db");
  fake_.boxes[deleted] = {"default", "running", "x", {}};  // as if node's folder were an older one as well
  fake_.boxes["onitsway0123456789abcdef"] = {"default", "creating", "x", {}};
  begin();
  EXPECT_TRUE(eventually([&] { return !gone(after) && !fake_.boxes.contains(deleted); }));
  EXPECT_EQ(state(before), SandboxState::running);
  EXPECT_TRUE(gone(deleted));
  EXPECT_TRUE(fake_.boxes.contains(after));
  EXPECT_TRUE(gone("onitsway0123456789abcdef")) << "not before it is made";
  EXPECT_TRUE(fake_.boxes.contains("onitsway0123456789abcdef"));
}

// A start whose answer was lost, or an end that was told while the inventory was on its way.
TEST_F(EngineTest, WhatNodeStillHasOfAnEndedSandboxIsNotThrownAway) {
  const std::string id = running();
  EXPECT_TRUE(must(store().end_sandbox(id, "lost")));
  restart();
  EXPECT_TRUE(eventually([&] { return state(id) == SandboxState::running; }));
  EXPECT_TRUE(fake_.boxes.contains(id));
  EXPECT_EQ(wait(change(OperationKind::pause, id).operation.id).state, OperationState::succeeded);
}

TEST_F(EngineTest, TheEndOfTheMachineBeforeIsNotThatOfTheOneThatWasStarted) {
  const std::string id = running();
  ASSERT_TRUE(eventually([&] { return process_->node.reachable(); }));
  spin(milliseconds(20));
  EXPECT_TRUE(must(store().end_sandbox(id, "vmm_exited")));  // by the inventory, before it was told
  fake_.hold = true;
  const Operation start = change(OperationKind::start, id).operation;
  ASSERT_TRUE(eventually([&] { return fake_.count("POST") == 1; }));
  fake_.end(id, "vmm_exited");
  spin(milliseconds(50));
  fake_.release();
  EXPECT_EQ(wait(start.id).state, OperationState::succeeded);
  spin(milliseconds(50));
  EXPECT_EQ(state(id), SandboxState::running);
  const auto events = must(store().events_after("default", 0, 100));
  EXPECT_EQ(std::ranges::count(events, "sandbox.ended", &Event::type), 1) << "it ended once";
}

TEST_F(EngineTest, WhoeverEnforcesPoliciesHearsOfAnUpdateBeforeItBeginsAndBeforeItsEndIsTold) {
  const std::string id = running();
  std::vector<std::string> heard;
  bool away = false;
  Engine::PolicyWatch watch;
  watch.begins = [&](const Operation&) -> Task<> {
    heard.push_back(fmt::format("begins, node was asked {} times", fake_.count("UPDATE")));
    if (away) co_return fail(ErrorKind::unavailable, "egress_unavailable", "the gateway is away");
    co_return Result<>();
  };
  watch.recorded = [&](const Operation& one) -> asio::awaitable<void> {
    co_await sleep_for(milliseconds(20));
    const auto now = co_await engine().find("default", one.id);
    heard.push_back(fmt::format("{}, told as {}", to_string(one.state), now ? to_string(now->state) : "unknown"));
  };
  engine().on_policy(watch);
  const auto update = [&](SandboxUpdate wanted) {
    Operation one = operation(OperationKind::update, id);
    one.request = encode(wanted);
    return wait(must(engine().change(std::move(one), std::nullopt)).operation.id);
  };
  SandboxUpdate policy, other;
  policy.egress = R"({"policy":{"mode":"none"}})";
  other.cpus = 1;
  EXPECT_EQ(update(policy).state, OperationState::succeeded);
  EXPECT_EQ(heard, (std::vector<std::string>{"begins, node was asked 0 times", "succeeded, told as running"}));
  EXPECT_EQ(must(store().find_egress("default", id)).generation, 1);
  EXPECT_EQ(update(other).state, OperationState::succeeded);
  EXPECT_EQ(heard.size(), 2U) << "no policy, nothing to hear";
  // Without it nothing is changed, at node neither.
  away = true;
  const Operation failed = update(policy);
  EXPECT_EQ(failed.state, OperationState::failed);
  EXPECT_EQ(failed.error ? failed.error->code : "", "egress_unavailable");
  EXPECT_EQ(heard.back(), "failed, told as running");
  EXPECT_EQ(fake_.count("UPDATE"), 2U);
  EXPECT_EQ(must(store().find_egress("default", id)).generation, 1);
}

TEST_F(EngineTest, TimeLimitsDelete) {
  const Accepted accepted = create(1);
  wait(accepted.operation.id);
  EXPECT_FALSE(gone(accepted.sandbox.id));
  EXPECT_TRUE(eventually([&] { return gone(accepted.sandbox.id); }));
  EXPECT_TRUE(fake_.boxes.empty());
  const auto operations = must(store().list_operations("default", {}, {}));
  EXPECT_EQ(operations.front().reason, "time_limit");
  const auto events = must(store().events_after("default", 0, 100));
  const auto deleted = std::ranges::find(events, "sandbox.deleted", &Event::type);
  ASSERT_NE(deleted, events.end());
  EXPECT_NE(deleted->data.find("time_limit"), std::string::npos);
}

TEST_F(EngineTest, PausesDoNotStretchATimeLimit) {
  const Accepted accepted = create(2);
  wait(accepted.operation.id);
  std::int64_t left = 2'000;
  while (left > 700) {
    spin(milliseconds(300));
    wait(change(OperationKind::pause, accepted.sandbox.id).operation.id);
    const std::int64_t now = must(store().find_sandbox("default", accepted.sandbox.id)).remaining_ms;
    EXPECT_GT(now, 0);
    EXPECT_LE(now, left - 300);
    left = now;
    wait(change(OperationKind::resume, accepted.sandbox.id).operation.id);
  }
  EXPECT_TRUE(eventually([&] { return gone(accepted.sandbox.id); }));
}

TEST_F(EngineTest, ATimeLimitThatPassedWhileWeWereAwayIsKept) {
  const Accepted accepted = create(1);
  wait(accepted.operation.id);
  kill();
  spin(milliseconds(1'100));
  begin();
  EXPECT_TRUE(eventually([&] { return gone(accepted.sandbox.id) && fake_.boxes.empty(); }));
}

TEST(Backoff, DoublesAndForgets) {
  ManualClock clock;
  Backoff again(clock);
  EXPECT_TRUE(again.begin("a"));
  EXPECT_FALSE(again.begin("a"));
  EXPECT_TRUE(again.begin("b")) << "each for itself";
  for (const int pause : {10, 20, 40, 80, 160, 320, 600, 600}) {
    clock.advance(std::chrono::milliseconds(pause * 1000 - 1));
    EXPECT_FALSE(again.begin("a")) << pause;
    clock.advance(std::chrono::milliseconds(1));
    EXPECT_TRUE(again.begin("a")) << pause;
  }
  again.forget("a");
  EXPECT_TRUE(again.begin("a"));
  again.keep_only({"b"});
  EXPECT_EQ(again.size(), 1u) << "nothing stays of what is gone";
  EXPECT_TRUE(again.begin("a"));
}

TEST_F(EngineTest, WhatCannotRestIsAskedForLessAndLessUntilItIsUsed) {
  RestPolicy rest;
  rest.idle_suspend_s = 60;
  const std::string id = resting(rest);
  fake_.boxes[id].idle_ms = 61'000;
  ASSERT_TRUE(eventually([&] { return fake_.count("POST") == 1; }));
  expect_tries_after({10, 20, 40, 80, 160, 320, 600, 600});
  EXPECT_EQ(state(id), SandboxState::running);

  // Somebody used it, and then nobody any more: that is a new time of rest.
  std::size_t before = fake_.count("POST");
  fake_.boxes[id].idle_ms = 0;
  spin(milliseconds(60));
  fake_.boxes[id].idle_ms = 61'000;
  ASSERT_TRUE(eventually([&] { return fake_.count("POST") == before + 1; }));
  expect_tries_after({10, 20});

  fake_.fail_with.reset();
  spin(milliseconds(60));
  manual_.advance(std::chrono::seconds(40));
  EXPECT_TRUE(eventually([&] { return state(id) == SandboxState::suspended; }));
}

TEST_F(EngineTest, HowMuchWorkIsUseIsThePolicysToSay) {
  RestPolicy usual, lazy;
  usual.idle_suspend_s = lazy.idle_suspend_s = 60;
  lazy.idle_cpu_percent = 30;
  const std::string busy = resting(usual), calm = resting(lazy), works = resting(lazy);
  fake_.fail_with.reset();
  for (const std::string& id : {busy, calm, works}) fake_.boxes[id].idle_ms = 90'000;
  fake_.boxes[busy].worked = fake_.boxes[calm].worked = {{101, 80'000}, {30, 2'000}, {4, 0}};
  fake_.boxes[works].worked = {{31, 59'000}};
  EXPECT_TRUE(eventually([&] { return state(calm) == SandboxState::suspended; }));
  spin(milliseconds(60));
  EXPECT_EQ(state(busy), SandboxState::running);
  EXPECT_EQ(state(works), SandboxState::running);
  fake_.boxes[works].worked = {{31, 60'000}};
  EXPECT_TRUE(eventually([&] { return state(works) == SandboxState::suspended; }));
}

TEST_F(EngineTest, ATimeLimitThatCannotSuspendIsAskedForLessAndLess) {
  RestPolicy rest;
  rest.suspend_at_limit = true;
  const std::string id = resting(rest, 1);
  manual_.advance(std::chrono::seconds(1));
  ASSERT_TRUE(eventually([&] { return fake_.count("POST") == 1; }));
  expect_tries_after({10, 20, 40});
  EXPECT_EQ(state(id), SandboxState::running) << "nobody deletes what was to be kept";
}

TEST_F(EngineTest, OnlySoManyAtATimeAndSoManyWaiting) {
  options_.max_running = 2;
  options_.max_pending = 3;
  restart();
  fake_.hold = true;
  std::vector<Accepted> all;
  for (int i = 0; i < 5; ++i) all.push_back(create());
  Sandbox box = sandbox();
  EXPECT_EQ(code(engine().create(box, operation(OperationKind::create, box.id), std::nullopt)), "too_many_operations");
  spin(milliseconds(50));
  EXPECT_EQ(fake_.count("PUT"), 2u);
  EXPECT_EQ(engine().gauges().pending, 3u);
  fake_.release();
  for (const Accepted& accepted : all) EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
  EXPECT_EQ(engine().gauges().succeeded, 5u);
}

TEST_F(EngineTest, OldRemainsAreDeletedAtNodeToo) {
  options_.retention.remains_ms = 0;
  options_.prune_every = milliseconds(20);
  restart();
  const std::string id = running();
  spin(milliseconds(20));
  fake_.end(id, "vmm_exited");
  EXPECT_TRUE(eventually([&] { return gone(id) && fake_.boxes.empty(); }));
}

TEST_F(EngineTest, ManySandboxesAtOnce) {
  std::vector<Accepted> all;
  for (int i = 0; i < 100; ++i) all.push_back(create());
  for (const Accepted& accepted : all) EXPECT_EQ(wait(accepted.operation.id).state, OperationState::succeeded);
  for (const Accepted& accepted : all) change(OperationKind::remove, accepted.sandbox.id);
  EXPECT_TRUE(eventually([&] { return fake_.boxes.empty() && must(store().list_sandboxes("default", {}, {})).empty(); }));
}

}  // namespace
}  // namespace space::control
