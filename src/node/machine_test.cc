// What the agent says of a freeze, and what is made of its silence.
#include "node/machine.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include "base/file.h"
#include "http/server.h"
#include "node/testing.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;

class Freeze : public ::testing::Test {
 protected:
  Freeze() {
    EXPECT_TRUE(server_.serve(listen_unix(dir_.path() / "agent.sock", SOCK_STREAM, 0600).value()));
    machine_.id = "vm";
    machine_.vm = std::make_shared<testing::FakeVm>("vm");
    machine_.agent = std::make_shared<wire::AgentClient>(loop_.get_executor(), http::unix_connector((dir_.path() / "agent.sock").string()));
  }

  Result<> freeze(milliseconds limit) {
    Result<> out;
    bool finished = false;
    const auto ask = [](Machine& machine, milliseconds time, http::Server& server, Result<>& result, bool& done) -> asio::awaitable<void> {
      result = co_await freeze_users(machine, time);
      co_await server.stop(milliseconds(0));
      done = true;
    };
    asio::co_spawn(loop_, ask(machine_, limit, server_, out, finished), [](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
    });
    while (!finished && loop_.run_one() > 0) {
    }
    return out;
  }

  Task<> answer(http::Exchange& exchange) {
    co_await sleep_for(late_);
    if (refusal_) co_return co_await exchange.reply(http::problem(*refusal_));
    co_return co_await exchange.reply(http::json_response(200, "{}"));
  }

  milliseconds late_{0};
  std::optional<Error> refusal_;
  TempDir dir_ = TempDir::make("/tmp", "space-machine-test").value();
  asio::io_context loop_;
  http::Server server_{loop_.get_executor(), [this](http::Exchange& e) { return answer(e); }};
  Machine machine_;
};

TEST_F(Freeze, WhatTheAgentSaysOfTheProcessesIsAConflict) {
  refusal_ = Error{ErrorKind::unavailable, "freeze_failed", "the processes did not stand still within 5 s", ""};
  const auto refused = freeze(std::chrono::seconds(10));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "guest_not_frozen");
  EXPECT_EQ(refused.error().kind, ErrorKind::conflict);
  EXPECT_NE(refused.error().next.find("state D"), std::string::npos);
}

TEST_F(Freeze, ASlowAgentIsNoGuestThatHangs) {
  late_ = std::chrono::seconds(5);
  const auto silent = freeze(milliseconds(100));
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, "agent_not_answering");
  EXPECT_EQ(silent.error().kind, ErrorKind::unavailable) << "it is tried again";
}

TEST_F(Freeze, NorIsOneThatSaysSomethingElse) {
  refusal_ = Error{ErrorKind::internal, "io_error", "open cgroup.freeze", ""};
  const auto wrong = freeze(std::chrono::seconds(10));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::unavailable);
}

TEST_F(Freeze, AnAgentThatIsLateIsWaitedFor) {
  late_ = milliseconds(200);
  EXPECT_TRUE(freeze(kInitLimit));
}

}  // namespace
}  // namespace space::node
