#include "api/idempotency.h"

#include <boost/asio/experimental/awaitable_operators.hpp>

#include "api/testing.h"
#include "base/digest.h"
#include "base/encoding.h"

namespace space::api {
namespace {

using testing::Answer;
using testing::ApiTest;
using testing::run;
using testing::text;
constexpr const char* kSession = "bbbbbbbbbbbbbbbbbbbbbbbb";

class IdempotencyTest : public ApiTest {
 protected:
  Answer with_key(const std::string& key, std::string method, std::string target, std::string body = {}) {
    return send_with(std::move(method), std::move(target), std::move(body), {{"Idempotency-Key", key}});
  }
};

TEST_F(IdempotencyTest, TheSameCreateIsDoneOnce) {
  const Answer first = with_key("one", "POST", "/v1/sandboxes", R"({"metadata":{"a":"b"}})");
  ASSERT_EQ(first.status, 202);
  EXPECT_FALSE(first.headers.has("Idempotency-Replayed"));
  const Answer second = with_key("one", "POST", "/v1/sandboxes", R"({"metadata":{"a":"b"}})");
  EXPECT_EQ(second.status, 202);
  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.headers.get("Idempotency-Replayed"), "true");
  restart();
  EXPECT_EQ(with_key("one", "POST", "/v1/sandboxes", R"({"metadata":{"a":"b"}})").text, first.text) << "also after a restart";
  const Answer other = with_key("one", "POST", "/v1/sandboxes", R"({"metadata":{"a":"c"}})");
  EXPECT_EQ(other.status, 422);
  EXPECT_EQ(other.code(), "idempotency_key_reused");
  EXPECT_EQ(with_key("one", "DELETE", "/v1/sandboxes/" + text(first.at("sandbox"), "id")).status, 422);
  EXPECT_EQ(send("GET", "/v1/sandboxes").body.at("sandboxes").as_array().size(), 1u);
  key_ = run(loop_, process_->keys.create("other", "theirs"))->secret;
  EXPECT_EQ(with_key("one", "POST", "/v1/sandboxes", "{}").status, 202) << "another tenant's keys are his own";
}

TEST_F(IdempotencyTest, WaitingKeepsTheLaterAnswer) {
  const auto create = [&](const char* wait) {
    return send_with("POST", "/v1/sandboxes", "{}", {{"Idempotency-Key", "w"}, {"Prefer", wait}});
  };
  fake_.hold = true;
  EXPECT_EQ(create("wait=1").status, 202);
  fake_.release();
  const Answer ready = create("wait=10");
  EXPECT_EQ(ready.status, 201) << "a repeated request may go on waiting";
  EXPECT_EQ(create("wait=10").text, ready.text);
  EXPECT_EQ(with_key("w", "POST", "/v1/sandboxes", "{}").text, ready.text);
  EXPECT_EQ(fake_.boxes.size(), 1u);
}

TEST_F(IdempotencyTest, AStoredAnswerNeedsNoNode) {
  const Answer first = with_key("n", "POST", "/v1/sandboxes", "{}");
  (void)run(loop_, [](testing::FakeNode& fake) -> Task<> {
    co_await fake.down();
    co_return Result<>();
  }(fake_));
  process_->node.forget_template_sizes();
  EXPECT_EQ(with_key("n", "POST", "/v1/sandboxes", "{}").text, first.text);
  EXPECT_EQ(send("POST", "/v1/sandboxes", "{}").code(), "node_unavailable");
}

TEST_F(IdempotencyTest, ADeleteRepeatedAfterItsEndIsNot404) {
  const std::string id = running();
  const auto remove = [&] { return send_with("DELETE", "/v1/sandboxes/" + id, "", {{"Idempotency-Key", "d"}, {"Prefer", "wait=10"}}); };
  const Answer first = remove();
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(remove().text, first.text);
  EXPECT_EQ(send("DELETE", "/v1/sandboxes/" + id).status, 404);
}

TEST_F(IdempotencyTest, NothingIsKeptOrToldBeforeNodeKnowsTheToken) {
  const std::string id = running(), session = "/v1/sandboxes/" + id + "/commands/" + kSession;
  ASSERT_FALSE(*run(loop_, process_->store->begin_answer("attach:" + id, "k", "of another request")));
  const auto signal = [&](const std::string& token) {
    key_ = token;
    return with_key("k", "POST", session + "/signal", R"({"signal":"TERM"})").code();
  };
  EXPECT_EQ(signal("at_bad"), "token_invalid");
  EXPECT_EQ(signal("at_expired"), "token_expired");
  EXPECT_EQ(signal("at_good"), "idempotency_key_reused") << "the store is asked for those alone";
  EXPECT_EQ(signal("anything"), "key_malformed");
}

TEST_F(IdempotencyTest, CommandsAreMadeOnce) {
  const std::string commands = "/v1/sandboxes/" + running() + "/commands";
  const Answer first = with_key("c", "POST", commands, R"({"command":"true"})");
  EXPECT_EQ(first.status, 201);
  const Answer second = with_key("c", "POST", commands, R"({"command":"true"})");
  EXPECT_EQ(second.status, 201);
  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.headers.get("Idempotency-Replayed"), "true");
  EXPECT_EQ(with_key("c", "POST", commands, R"({"command":"false"})").status, 422);
  EXPECT_EQ(fake_.count("POST /v1"), 1u);
}

TEST_F(IdempotencyTest, WhoeverLostTheConnectionFindsTheAnswer) {
  const std::string commands = "/v1/sandboxes/" + running() + "/commands";
  http::Request first = request("POST", commands, R"({"command":"true"})");
  first.headers.set("Idempotency-Key", "lost");
  fake_.hold = true;
  (void)run(loop_, [](http::Client& client, http::Request out) -> Task<> {
    using namespace asio::experimental::awaitable_operators;
    const auto ended = co_await (client.request(std::move(out)) || sleep_for(std::chrono::milliseconds(200)));
    EXPECT_EQ(ended.index(), 1u) << "node was still at it when the client went";
    co_return Result<>();
  }(*client_, std::move(first)));
  spin(std::chrono::milliseconds(50));
  EXPECT_EQ(fake_.count("POST /v1"), 1u);
  fake_.release();
  spin(std::chrono::milliseconds(50));
  const Answer again = with_key("lost", "POST", commands, R"({"command":"true"})");
  EXPECT_EQ(again.status, 201) << again.text;
  EXPECT_EQ(again.headers.get("Idempotency-Replayed"), "true");
  EXPECT_EQ(fake_.count("POST /v1"), 1u) << "it was done once";
}

TEST_F(IdempotencyTest, UploadsAreComparedByTheirBytes) {
  const std::string target = "/v1/sandboxes/" + running() + "/files/content?path=/x";
  const auto upload = [&](std::string bytes) {
    http::Request out = request("PUT", target, std::move(bytes));
    out.headers.set("Content-Type", "application/octet-stream");
    out.headers.set("Idempotency-Key", "u");
    return send(std::move(out));
  };
  const Answer first = upload(std::string(2 << 20, 'a'));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(upload(std::string(2 << 20, 'a')).text, first.text);
  EXPECT_EQ(upload(std::string(2 << 20, 'b')).code(), "idempotency_key_reused");
  EXPECT_EQ(fake_.count("PUT /v1"), 1u);
}

TEST_F(IdempotencyTest, ErrorsAreNotKept) {
  const std::string id = running();
  const std::string signal = "/v1/sandboxes/" + id + "/commands/" + kSession + "/signal";
  send_with("POST", "/v1/sandboxes/" + id + "/pause", "", {{"Prefer", "wait=5"}});
  EXPECT_EQ(with_key("s", "POST", signal, R"({"signal":"TERM"})").code(), "sandbox_paused");
  send_with("POST", "/v1/sandboxes/" + id + "/resume", "", {{"Prefer", "wait=5"}});
  EXPECT_EQ(with_key("s", "POST", signal, R"({"signal":"TERM"})").status, 201);
  EXPECT_EQ(with_key("x", "POST", "/v1/sandboxes", R"({"nonsense":1})").status, 400);
  EXPECT_EQ(with_key("x", "POST", "/v1/sandboxes", "{}").status, 202);
}

TEST_F(IdempotencyTest, AKeyUnderWayAndOneWhoseOutcomeNobodyKnows) {
  const std::string commands = "/v1/sandboxes/" + running() + "/commands";
  process_->services.in_flight.insert({"default", "busy"});
  EXPECT_EQ(with_key("busy", "POST", commands, "{}").code(), "idempotency_in_flight");
  process_->services.in_flight.clear();
  // As after kill -9 in the middle: begun, and no answer.
  const http::Request out = request("POST", commands, R"({"command":"true"})");
  std::string print;
  {
    Sha256Stream digest;
    for (std::string_view part : {std::string_view(out.method), std::string_view(out.target), std::string_view(out.body)}) {
      digest.add(as_bytes(std::to_string(part.size()) + ":"));
      digest.add(as_bytes(part));
    }
    print = hex_encode(digest.finish());
  }
  ASSERT_TRUE(run(loop_, process_->store->begin_answer("default", "lost", print)));
  EXPECT_EQ(with_key("lost", "POST", commands, R"({"command":"true"})").code(), "idempotency_outcome_unknown");
}

TEST_F(IdempotencyTest, SecretsAreNotWrittenDown) {
  const Answer first = with_key("k", "POST", "/v1/keys", R"({"name":"ci"})");
  ASSERT_EQ(first.status, 201);
  EXPECT_EQ(with_key("k", "POST", "/v1/keys", R"({"name":"ci"})").text, first.text);
  const std::string secret = text(first.body, "key");
  for (const char* file : {"space.db", "space.db-wal"}) {
    const auto bytes = read_file(folder_.path() / file, 64 << 20);
    if (!bytes) continue;
    EXPECT_EQ(bytes->find(secret), std::string::npos) << file;
  }
  restart();
  const Answer late = with_key("k", "POST", "/v1/keys", R"({"name":"ci"})");
  EXPECT_EQ(late.status, 409);
  EXPECT_EQ(late.code(), "secret_shown_once");
  EXPECT_EQ(send("GET", "/v1/keys").body.at("keys").as_array().size(), 2u);
}

TEST_F(IdempotencyTest, TheHeaderIsReadStrictly) {
  for (const std::string& key : {std::string(""), std::string(256, 'x'), std::string("a b"), std::string("\xc3\xa9")})
    EXPECT_EQ(with_key(key, "POST", "/v1/sandboxes", "{}").code(), "invalid_header") << key;
  EXPECT_EQ(send_with("POST", "/v1/sandboxes", "{}", {{"Idempotency-Key", "a"}, {"Idempotency-Key", "b"}}).code(), "invalid_header");
  EXPECT_EQ(with_key(std::string(255, 'x'), "POST", "/v1/sandboxes", "{}").status, 202);
}

}  // namespace
}  // namespace space::api
