#include "node/sessions.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace space::node {
namespace {

struct SessionTableTest : ::testing::Test {
  ManualClock clock;
  SessionTable table{clock};
  std::string one = new_id(), two = new_id();
  void SetUp() override {
    ASSERT_TRUE(table.add(one, 1));
    ASSERT_TRUE(table.add(two, 2));
  }
};

wire::ProcessInfo listed(std::string session, std::uint32_t process) {
  wire::ProcessInfo info;
  info.session = std::move(session);
  info.process = process;
  return info;
}

TEST_F(SessionTableTest, ATokenOpensItsOwnSessionOnly) {
  const auto token = table.issue(one).value();
  EXPECT_TRUE(table.check(one, token.token));
  EXPECT_EQ(table.check(two, token.token).error().code, "token_invalid");
  EXPECT_EQ(table.check(one, token.token + "x").error().kind, ErrorKind::unauthenticated);
  EXPECT_EQ(table.check(one, "").error().code, "token_invalid");
  EXPECT_EQ(table.check("nothing", token.token).error().code, "token_invalid");
}

TEST_F(SessionTableTest, ATokenEndsAfterItsTimeAndIsRenewable) {
  const auto token = table.issue(one).value();
  clock.advance(std::chrono::milliseconds(kAttachTokenLifeMs - 1));
  EXPECT_TRUE(table.check(one, token.token));
  clock.advance(std::chrono::milliseconds(1));
  EXPECT_EQ(table.check(one, token.token).error().code, "token_expired");
  EXPECT_EQ(table.check(one, token.token).error().kind, ErrorKind::gone);
  EXPECT_TRUE(table.check(one, table.issue(one).value().token));
}

TEST_F(SessionTableTest, TokensAreBounded) {
  const auto first = table.issue(one).value();
  for (int i = 0; i < 16; ++i) (void)table.issue(one);
  EXPECT_FALSE(table.check(one, first.token));
}

TEST_F(SessionTableTest, SessionsAreFoundAgainInWhatTheAgentLists) {
  SessionTable fresh(clock);
  fresh.reconcile({listed(one, 7), listed("", 1), listed("../x", 3), listed(one, 9)}, fresh.mark());
  EXPECT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh.process(one).value(), 7u);
}

TEST_F(SessionTableTest, TheAgentCannotTurnASessionIntoAnotherProcess) {
  table.reconcile({listed(one, 99), listed(two, 2)}, table.mark());
  EXPECT_EQ(table.process(one).value(), 1u);
}

TEST_F(SessionTableTest, WhatTheAgentForgotGoes) {
  table.reconcile({listed(two, 2)}, table.mark());
  EXPECT_EQ(table.process(one).error().code, "session_not_found");
  EXPECT_EQ(table.size(), 1u);
}

TEST_F(SessionTableTest, AListThatWasAskedForEarlierDropsNothingNewer) {
  const std::uint64_t mark = table.mark();
  const std::string three = new_id();
  ASSERT_TRUE(table.add(three, 3));
  table.reconcile({listed(one, 1), listed(two, 2)}, mark);
  EXPECT_EQ(table.process(three).value(), 3u);
}

}  // namespace
}  // namespace space::node
