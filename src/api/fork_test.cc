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
