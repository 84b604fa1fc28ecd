// Freezing, over a folder that answers as the kernel's would.
#include "agent/cgroup.h"

#include <boost/asio/io_context.hpp>
#include <fstream>
#include <gtest/gtest.h>

#include "base/file.h"

namespace space::agent {
namespace {

using std::chrono::milliseconds;

class Group : public ::testing::Test {
 protected:
  void SetUp() override {
    put("cgroup.freeze", "0");
    put("cgroup.events", "populated 1\nfrozen 0\n");
    ASSERT_TRUE(group_.open(folder_.path().string()));
  }
  void put(const std::string& name, const std::string& text) { std::ofstream(folder_.path() / name) << text; }
  std::string asked() {
    std::string text;
    std::getline(std::ifstream(folder_.path() / "cgroup.freeze"), text);
    return text;
  }

  // The freeze, beside `kernel`.
  Result<> freeze(asio::awaitable<void> kernel) {
    Result<> out;
    const auto ask = [](UserGroup& group, Result<>& result) -> asio::awaitable<void> { result = co_await group.freeze(); };
    const auto rethrow = [](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
    };
    asio::co_spawn(loop_, ask(group_, out), rethrow);
    asio::co_spawn(loop_, std::move(kernel), rethrow);
    loop_.run();
    return out;
  }

  // False after three seconds.
  asio::awaitable<bool> becomes(std::string wanted) {
    for (int i = 0; i < 600; ++i) {
      if (asked() == wanted) co_return true;
      co_await sleep_for(milliseconds(5));
    }
    co_return false;
  }
  asio::awaitable<void> freezes_the_second_time() {
    EXPECT_TRUE(co_await becomes("1"));
    EXPECT_TRUE(co_await becomes("0")) << "it is let go, so that a daemon can answer";
    EXPECT_TRUE(group_.frozen()) << "nothing new may start";
    EXPECT_TRUE(co_await becomes("1"));
    put("cgroup.events", "populated 1\nfrozen 1\n");
  }
  asio::awaitable<void> thaws_while_it_is_let_go() {
    EXPECT_TRUE(co_await becomes("1"));
    EXPECT_TRUE(co_await becomes("0"));
    EXPECT_TRUE(group_.thaw());
  }
  asio::awaitable<void> thaws_at_once() {
    EXPECT_TRUE(co_await becomes("1"));
    EXPECT_TRUE(group_.thaw());
  }
  asio::awaitable<void> never_freezes() { co_return; }

  asio::io_context loop_;
  TempDir folder_ = TempDir::make("/tmp", "space-cgroup-test").value();
  UserGroup group_{loop_.get_executor(), [] { return std::vector<pid_t>(); }};
};

TEST_F(Group, WhatWaitsForADaemonThatFrozeFirstStandsStillAtTheNextTry) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(freeze(freezes_the_second_time()));
  EXPECT_EQ(asked(), "1");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

TEST_F(Group, WhatWasThawedMeanwhileIsNotFrozenAnew) {
  EXPECT_EQ(freeze(thaws_while_it_is_let_go()).error().code, "freeze_overtaken");
  EXPECT_EQ(asked(), "0");
  EXPECT_FALSE(group_.frozen());
  loop_.restart();
  EXPECT_FALSE(freeze(thaws_at_once()));
  EXPECT_EQ(asked(), "0");
}

TEST_F(Group, WhatNeverStandsStillIsToldAndStaysAsItIsUntilItIsThawed) {
  EXPECT_EQ(freeze(never_freezes()).error().code, "freeze_failed");
  EXPECT_EQ(asked(), "1");
  EXPECT_TRUE(group_.frozen());
  EXPECT_TRUE(group_.thaw());
  EXPECT_EQ(asked(), "0");
}

}  // namespace
}  // namespace space::agent
