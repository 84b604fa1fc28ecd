// What the engine does by itself: time limits, rest, and asking less and less for what cannot be.
#include <gtest/gtest.h>

#include "control/backoff.h"
#include "control/engine_testing.h"

namespace space::control {
namespace {

using std::chrono::milliseconds;

class EngineRestTest : public testing::EngineTest {};

TEST_F(EngineRestTest, TimeLimitsDelete) {
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

TEST_F(EngineRestTest, WhatStaysDueIsNotLookedAtWithoutAPause) {
  int asked = 0;
  engine().on_deadline([&](Sandbox) -> Task<bool> {
    ++asked;
    co_return true;
  });
  wait(create(1).operation.id);
  ASSERT_TRUE(eventually([&] { return asked > 0; }));
  spin(milliseconds(1'000));
  EXPECT_GT(asked, 1);
  EXPECT_LE(asked, 8) << "every quarter of a second";
}

TEST_F(EngineRestTest, PausesDoNotStretchATimeLimit) {
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

TEST_F(EngineRestTest, ATimeLimitThatPassedWhileWeWereAwayIsKept) {
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

TEST_F(EngineRestTest, WhatCannotRestIsAskedForLessAndLessUntilItIsUsed) {
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

TEST_F(EngineRestTest, HowMuchWorkIsUseIsThePolicysToSay) {
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

TEST_F(EngineRestTest, ATimeLimitThatCannotSuspendIsAskedForLessAndLess) {
  RestPolicy rest;
  rest.suspend_at_limit = true;
  const std::string id = resting(rest, 1);
  manual_.advance(std::chrono::seconds(1));
  ASSERT_TRUE(eventually([&] { return fake_.count("POST") == 1; }));
  expect_tries_after({10, 20, 40});
  EXPECT_EQ(state(id), SandboxState::running) << "nobody deletes what was to be kept";
}

}  // namespace
}  // namespace space::control
