#include "control/engine.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "control/engine_testing.h"
#include "control/update.h"

namespace space::control {
namespace {

using std::chrono::milliseconds;

using testing::EngineTest;

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

TEST_F(EngineTest, ACreateIsMadeAsItWasAskedForOrNotAtAll) {
  Sandbox box = sandbox();
  Operation large = operation(OperationKind::create, box.id);
  const json::object request{{"checkpoint", new_id()}, {"env", json::object{{"A", std::string(1 << 20, 'a')}}}};
  large.request = json::serialize(request);
  const Operation done = wait(must(engine().create(box, large, std::nullopt)).operation.id);
  EXPECT_EQ(done.state, OperationState::failed) << "the fake node takes a megabyte";
  EXPECT_EQ(fake_.count("PUT"), 0u) << "nor is one made without its checkpoint";
}

TEST_F(EngineTest, WhatCannotBeTakenAwayHoldsUpNothingElse) {
  fake_.fail_with = Error{ErrorKind::internal, "no_vm", "none", ""};
  const Accepted failed = create();
  EXPECT_EQ(wait(failed.operation.id).state, OperationState::failed);
  fake_.fail_with.reset();
  const std::string lost = running();
  kill();
  fake_.boxes.erase(lost);
  fake_.boxes[failed.sandbox.id] = {"default", "stuck", "x", {}};
  fake_.boxes["unknown0123456789abcdefgh"] = {"default", "running", "x", {}};
  begin();
  EXPECT_TRUE(eventually([&] { return state(lost) == SandboxState::ended && !gone("unknown0123456789abcdefgh"); }));
  EXPECT_TRUE(eventually([&] { return engine().reconciled(); })) << "time limits wait for it";
  EXPECT_TRUE(fake_.boxes.contains(failed.sandbox.id));
  fake_.boxes[failed.sandbox.id].state = "running";
  EXPECT_TRUE(eventually([&] { return !fake_.boxes.contains(failed.sandbox.id); })) << "it is tried again";
}

TEST_F(EngineTest, WhatEndedBesideAnOperationIsFoundBehindIt) {
  options_.reconcile_every = std::chrono::hours(1);
  restart();
  const std::string id = running();
  fake_.hold = true;
  SandboxUpdate wanted;
  wanted.cpus = 1;
  Operation update = operation(OperationKind::update, id);
  update.request = encode(wanted);
  must(engine().change(std::move(update), std::nullopt));
  ASSERT_TRUE(eventually([&] { return fake_.count("UPDATE") == 1; }));
  fake_.end(id, "vmm_gone", false);
  restart();  // what is looked at once has the operation at work on it
  spin(milliseconds(200));
  EXPECT_EQ(state(id), SandboxState::running);
  fake_.release();
  EXPECT_TRUE(eventually([&] { return state(id) == SandboxState::ended; }));
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
  const std::string before = running(), deleted = running(), soon = create(60).sandbox.id;
  ASSERT_TRUE(eventually([&] { return state(soon) == SandboxState::running; }));
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
  EXPECT_TRUE(eventually([&] { return engine().reconciled(); }));
  EXPECT_GT(must(store().find_sandbox("default", soon)).ends_ms, system_clock().wall_ms() + 590'000)
      << "what moved its end since is not known: not even one that comes in a moment is kept";
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
