// An engine with its store, and a node that is a fake: both ends of what tests of the engine drive. For one thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "control/engine.h"
#include "control/fake_node.h"
#include "control/sqlite_store.h"
#include "control/testing.h"

namespace space::control::testing {

using std::chrono::milliseconds;

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
    ASSERT_TRUE(run(loop, store->put_key(key)));
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

}  // namespace space::control::testing
