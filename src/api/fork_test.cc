// Forks: from which checkpoint, and what the children are given.
#include <gtest/gtest.h>

#include "api/testing.h"
#include "base/random.h"

namespace space::api {
namespace {

using testing::Answer;
using testing::ApiTest;
using testing::text;

class ForkTest : public ApiTest {
 protected:
  Answer fork(const std::string& parent, const std::string& body, std::initializer_list<std::pair<std::string, std::string>> more = {}) {
    http::Request out = request("POST", "/v1/sandboxes/" + parent + "/fork", body);
    out.headers.set("Prefer", "wait=10");
    for (const auto& [name, value] : more) out.headers.add(name, value);
    return send(std::move(out));
  }
  json::object first_child(const Answer& answer) {
    const json::array& children = answer.at("operation").at("children").as_array();
    return children.empty() ? json::object() : send("GET", "/v1/sandboxes/" + std::string(children[0].as_string())).body;
  }
};

TEST_F(ForkTest, OnlyACheckpointOfItsOwnIsGoneOnFrom) {
  const std::string one = running(), other = running(), checkpoint = new_id();
  fake_.checkpoints[checkpoint] = one;
  const std::string body = R"({"checkpoint":")" + checkpoint + R"("})";
  const std::size_t before = fake_.count("PUT");

  // Its guest trusts the certificates of `one`, and a child of `other` would have another authority and policy.
  const Answer refused = fork(other, body);
  EXPECT_EQ(refused.status, 409) << refused.text;
  EXPECT_EQ(refused.code(), "checkpoint_of_another");
  EXPECT_NE(text(refused.body, "next").find("create"), std::string::npos);
  EXPECT_EQ(fake_.count("PUT"), before);
  EXPECT_EQ(send("GET", "/v1/operations?sandbox=" + other).body.at("operations").as_array().size(), 1u) << "its create alone";

  const Answer made = fork(one, body);
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_EQ(first_child(made).at("memory_mib").as_int64(), 1024) << "as the checkpoint is, not as its sandbox is now";
}

// An id of one that is still being made is known to its client: what cannot be looked at now is not gone on from either.
TEST_F(ForkTest, WhatIsGivenStandsInPlaceOfTheParents) {
  const std::string parent =
      running(R"({"metadata":{"a":"1"},"time_limit_s":600,"idle_pause_s":60,"idle_suspend_s":600,"idle_cpu_percent":40})");
  const std::string checkpoint = new_id();
  fake_.checkpoints[checkpoint] = parent;
  const auto child_with = [&](const std::string& more) {
    const Answer made = fork(parent, R"({"checkpoint":")" + checkpoint + "\"" + more + "}");
    EXPECT_EQ(made.status, 201) << made.text;
    return made.status == 201 ? first_child(made) : json::object();
  };
  const auto number = [](const json::object& sandbox, const char* name) {
    return sandbox.contains(name) ? sandbox.at(name).as_int64() : 0;
  };
  for (const char* same : {"", R"(,"idle_pause_s":null,"idle_suspend_s":null,"idle_cpu_percent":null,"egress":null,"time_limit_s":null)"}) {
    const json::object child = child_with(same);
    EXPECT_EQ(number(child, "idle_pause_s"), 60) << same;
    EXPECT_EQ(number(child, "idle_suspend_s"), 600);
    EXPECT_EQ(number(child, "idle_cpu_percent"), 40);
    EXPECT_EQ(number(child, "time_limit_s"), 600);
  }
  const json::object other = child_with(R"(,"idle_suspend_s":900,"idle_cpu_percent":5)");
  EXPECT_EQ(number(other, "idle_pause_s"), 60) << "what is not named stays the parent's";
  EXPECT_EQ(number(other, "idle_suspend_s"), 900);
  EXPECT_EQ(number(other, "idle_cpu_percent"), 0) << "the default, which is not shown";
}

TEST_F(ForkTest, WhatACreateRefusesAForkRefusesToo) {
  const std::string parent = running();
  const std::size_t before = fake_.calls.size();
  for (const char* bad : {R"({"idle_pause_s":0})", R"({"idle_suspend_s":2592001})", R"({"idle_cpu_percent":101})",
                          R"({"idle_suspend_s":"5"})", R"({"at_time_limit":"delete"})", R"({"egress":7})"})
    EXPECT_EQ(fork(parent, bad).status, 400) << bad;
  EXPECT_EQ(fork(parent, R"({"egress":"none"})").code(), "egress_unavailable") << "this server has no gateway that would check it";
  EXPECT_EQ(fake_.calls.size(), before);
}

TEST_F(ForkTest, OneThatIsNotThereIsRefusedBeforeAnythingBegins) {
  const std::string one = running();
  const Answer refused = fork(one, R"({"checkpoint":")" + new_id() + R"("})");
  EXPECT_EQ(refused.status, 404) << refused.text;
  EXPECT_EQ(refused.code(), "checkpoint_not_found");
  EXPECT_EQ(send("GET", "/v1/operations?sandbox=" + one).body.at("operations").as_array().size(), 1u);
}

TEST_F(ForkTest, TheSameRequestAgainIsAnsweredThoughItsCheckpointHasGone) {
  const std::string one = running(), checkpoint = new_id();
  fake_.checkpoints[checkpoint] = one;
  const std::string body = R"({"checkpoint":")" + checkpoint + R"("})";
  const Answer made = fork(one, body, {{"Idempotency-Key", "k"}});
  ASSERT_EQ(made.status, 201) << made.text;
  fake_.checkpoints.clear();
  EXPECT_EQ(fork(one, body, {{"Idempotency-Key", "k"}}).text, made.text);
}

}  // namespace
}  // namespace space::api
