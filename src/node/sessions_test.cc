#include "node/sessions.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace space::node {
namespace {

struct SessionTableTest : ::testing::Test {
  SessionTable table;
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

TEST_F(SessionTableTest, SessionsAreFoundAgainInWhatTheAgentLists) {
  SessionTable fresh;
  fresh.reconcile({listed(one, 7), listed("", 1), listed("../x", 3), listed(one, 9)}, fresh.mark());
  EXPECT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh.process(one).value(), 7u);
}

TEST_F(SessionTableTest, TheHighestNumberIsKnownOnceItWasSeenAndOnlyThisTableGivesMore) {
  EXPECT_TRUE(table.knows_highest());
  EXPECT_EQ(table.highest(), 2u);
  SessionTable fresh;
  EXPECT_FALSE(fresh.knows_highest());
  fresh.reconcile({listed("", 7)}, fresh.mark());
  EXPECT_TRUE(fresh.knows_highest());
  EXPECT_EQ(fresh.highest(), 7u);
  table.others_start();
  table.reconcile({}, table.mark());
  EXPECT_FALSE(table.knows_highest());
  table.clear();
  EXPECT_FALSE(table.knows_highest());
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
