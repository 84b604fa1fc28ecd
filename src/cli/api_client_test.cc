#include "cli/api_client.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/encoding.h"
#include "base/random.h"
#include "cli/event_stream.h"
#include "http/router.h"
#include "http/server.h"

namespace space::cli {
namespace {

using namespace std::chrono_literals;

// A server on a free port and a client of it, on one loop.
class ApiClientTest : public ::testing::Test {
 protected:
  void serve(http::Router& router) {
    listen(router);
    Connection connection = parse_url("http://127.0.0.1:" + std::to_string(port_)).value();
    connection.key = "sk_test";
    api_ = ApiClient::make(loop_.get_executor(), std::move(connection)).value();
  }

  // Again on the same port, after the first time.
  void listen(http::Router& router) {
    server_ = std::make_unique<http::Server>(loop_.get_executor(), [&router](http::Exchange& e) { return router(e); });
    Fd listener = http::listen_tcp("127.0.0.1", port_).value();
    port_ = http::local_port(listener).value();
    ASSERT_TRUE(server_->serve(std::move(listener)));
  }

  asio::awaitable<void> restart(http::Router& router) {
    co_await sleep_for(50ms);
    server_.reset();
    co_await sleep_for(500ms);
    listen(router);
  }

  template <class T>
  Result<T> run(Task<T> task) {
    Result<T> out = fail(ErrorKind::internal, "not_run", "");
    spawn(loop_.get_executor(), [](Task<T> inner, Result<T>& into, asio::io_context& loop) -> asio::awaitable<void> {
      into = co_await std::move(inner);
      loop.stop();
    }(std::move(task), out, loop_));
    loop_.restart();
    loop_.run_for(20s);
    return out;
  }

  std::uint16_t port_ = 0;
  asio::io_context loop_{1};
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<ApiClient> api_;
};

// Sends the events after Last-Event-ID, at most `at_once` of them, and then cuts the connection in the middle of the next one.
struct FlakyEvents {
  int total = 10;
  int at_once = 3;
  bool repeats = false;  // begins one event too early
  std::vector<std::string> asked;

  Task<> operator()(http::Exchange& exchange) {
    const std::string last(exchange.headers().get("Last-Event-ID"));
    asked.push_back(last);
    int next = last.empty() ? 1 : std::stoi(last.substr(2)) + 1;
    if (repeats && next > 1) --next;
    http::SseWriter writer(exchange);
    CO_TRY_VOID(co_await writer.start());
    for (int sent = 0; next <= total; ++next, ++sent) {
      if (sent == at_once) {
        const std::string half = "id: 1." + std::to_string(next) + "\nevent: stdout\nda";
        CO_TRY_VOID(co_await exchange.write(as_bytes(half)));
        exchange.abort();
        co_return Result<>();
      }
      const http::SseEvent event{"1." + std::to_string(next), next == total ? "exit" : "stdout", std::to_string(next)};
      CO_TRY_VOID(co_await writer.send(event));
    }
    co_return co_await writer.finish();
  }
};

Task<std::vector<std::string>> collect(ApiClient& api, EventStreamOptions options) {
  EventStream stream(api, "/events", std::move(options));
  std::vector<std::string> seen;
  for (;;) {
    CO_TRY(const std::optional<http::SseEvent> event, co_await stream.next());
    if (!event) co_return seen;
    seen.push_back(event->data);
  }
}

EventStreamOptions until_exit() {
  EventStreamOptions options;
  options.last_event = "exit";
  return options;
}

const std::vector<std::string> kOneToTen = {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"};

TEST_F(ApiClientTest, GoesOnAfterALostConnectionWithoutLossOrRepetition) {
  FlakyEvents events;
  http::Router router;
  router.add("GET", "/events", [&](http::Exchange& e) { return events(e); });
  serve(router);
  const auto seen = run(collect(*api_, until_exit()));
  ASSERT_TRUE(seen) << describe(seen.error());
  EXPECT_EQ(*seen, kOneToTen);
  EXPECT_EQ(events.asked, (std::vector<std::string>{"", "1.3", "1.6", "1.9"}));
}

TEST_F(ApiClientTest, DropsAnEventThatTheServerSendsTwice) {
  FlakyEvents events;
  events.repeats = true;
  http::Router router;
  router.add("GET", "/events", [&](http::Exchange& e) { return events(e); });
  serve(router);
  const auto seen = run(collect(*api_, until_exit()));
  ASSERT_TRUE(seen) << describe(seen.error());
  EXPECT_EQ(*seen, kOneToTen);
}

TEST_F(ApiClientTest, AnEndWithoutTheLastEventIsALostConnection) {
  int calls = 0;
  http::Router router;
  router.add("GET", "/events", [&](http::Exchange& e) -> Task<> {
    ++calls;
    http::SseWriter writer(e);
    CO_TRY_VOID(co_await writer.start());
    const http::SseEvent event{"1." + std::to_string(calls), calls == 3 ? "exit" : "stdout", std::to_string(calls)};
    CO_TRY_VOID(co_await writer.send(event));
    co_return co_await writer.finish();
  });
  serve(router);
  const auto seen = run(collect(*api_, until_exit()));
  ASSERT_TRUE(seen) << describe(seen.error());
  EXPECT_EQ(*seen, (std::vector<std::string>{"1", "2", "3"}));
}

TEST_F(ApiClientTest, APositionOutsideTheWindowIsNotTriedAgain) {
  int calls = 0;
  http::Router router;
  router.add("GET", "/events", [&](http::Exchange&) -> Task<> {
    ++calls;
    co_return fail(ErrorKind::conflict, "outside_window", "that is gone");
  });
  serve(router);
  const auto seen = run(collect(*api_, until_exit()));
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, "outside_window");
  EXPECT_EQ(calls, 1);
}

TEST_F(ApiClientTest, AServerThatIsAwayForALongTimeIsGivenUp) {
  http::Router router;
  serve(router);
  server_.reset();
  EventStreamOptions options = until_exit();
  options.patience = 300ms;
  const auto begun = std::chrono::steady_clock::now();
  const auto seen = run(collect(*api_, options));
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().kind, ErrorKind::unavailable);
  EXPECT_NE(seen.error().message.find("127.0.0.1"), std::string::npos) << seen.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
}

TEST_F(ApiClientTest, EveryChangeCarriesAKeyOfItsOwnAndTheApiKey) {
  std::vector<std::string> keys;
  http::Router router;
  router.add("POST", "/v1/things", [&](http::Exchange& e) -> Task<> {
    keys.emplace_back(e.headers().get("Idempotency-Key"));
    EXPECT_EQ(e.headers().get("Authorization"), "Bearer sk_test");
    co_return co_await e.reply(http::json_response(201, "{}"));
  });
  serve(router);
  for (int i = 0; i < 2; ++i) {
    json::object body;
    ASSERT_TRUE(run(api_->send("POST", "/v1/things", body)));
  }
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_TRUE(is_id(keys[0]));
  EXPECT_NE(keys[0], keys[1]);
}

// Cuts the connection of the first request in place of an answer.
struct LosesTheFirst {
  std::vector<std::string> keys;
  std::function<void()> then = [] {};

  Task<> operator()(http::Exchange& exchange) {
    keys.emplace_back(exchange.headers().get("Idempotency-Key"));
    if (keys.size() > 1) co_return co_await exchange.reply(http::json_response(201, R"({"id":"made"})"));
    exchange.abort();
    then();
    co_return Result<>();
  }
};

TEST_F(ApiClientTest, AFirstRequestThatGotNoAnswerIsSentAgainWithItsKey) {
  LosesTheFirst things;
  http::Router router;
  router.add("POST", "/v1/things", [&](http::Exchange& e) { return things(e); });
  serve(router);
  const auto made = run(api_->send("POST", "/v1/things", json::object()));
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(text_of(*made, "id"), "made");
  ASSERT_EQ(things.keys.size(), 2u);
  EXPECT_TRUE(is_id(things.keys[0]));
  EXPECT_EQ(things.keys[0], things.keys[1]);
}

TEST_F(ApiClientTest, AServerThatDiedOfTheFirstRequestIsWaitedFor) {
  LosesTheFirst things;
  http::Router router;
  router.add("POST", "/v1/things", [&](http::Exchange& e) { return things(e); });
  things.then = [&] { spawn(loop_.get_executor(), restart(router)); };
  serve(router);
  const auto made = run(api_->send("POST", "/v1/things", json::object()));
  ASSERT_TRUE(made) << describe(made.error());
  ASSERT_EQ(things.keys.size(), 2u);
  EXPECT_EQ(things.keys[0], things.keys[1]);
}

TEST_F(ApiClientTest, AServerThatWasNeverThereIsNotWaitedFor) {
  http::Router router;
  serve(router);
  server_.reset();
  const auto begun = std::chrono::steady_clock::now();
  const auto made = run(api_->send("POST", "/v1/things", json::object()));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, "connect_failed");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
}

TEST_F(ApiClientTest, WhatIsRefusedAtFirstIsNotAskedAgain) {
  int calls = 0;
  http::Router router;
  router.add("POST", "/v1/things", [&](http::Exchange&) -> Task<> {
    ++calls;
    co_return fail(ErrorKind::unavailable, "egress_unavailable", "this server has no gateway");
  });
  serve(router);
  const auto made = run(api_->send("POST", "/v1/things", json::object()));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, "egress_unavailable");
  EXPECT_EQ(calls, 1);
}

TEST_F(ApiClientTest, AWaitForAnOperationGoesOverALostConnection) {
  int calls = 0;
  http::Router router;
  router.add("GET", "/v1/operations/{id}", [&](http::Exchange& e) -> Task<> {
    if (++calls > 2) co_return co_await e.reply(http::json_response(200, R"({"id":"x","state":"succeeded"})"));
    e.abort();
    co_return Result<>();
  });
  serve(router);
  const auto done = run(api_->finish("x"));
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(calls, 3);
}

TEST_F(ApiClientTest, AListIsReadOverAllItsPages) {
  http::Router router;
  router.add("GET", "/v1/things", [&](http::Exchange& e) -> Task<> {
    const std::string after = e.target().query_value("after").value_or("");
    const char* page = after.empty() ? R"({"things":[1,2],"next":"a/b"})" : R"({"things":[3],"next":null})";
    EXPECT_TRUE(after.empty() || after == "a/b") << after;
    co_return co_await e.reply(http::json_response(200, page));
  });
  serve(router);
  const auto things = run(api_->list("/v1/things", "things"));
  ASSERT_TRUE(things) << describe(things.error());
  EXPECT_EQ(json::serialize(*things), "[1,2,3]");
}

TEST_F(ApiClientTest, AnOperationThatFailedIsItsError) {
  http::Router router;
  router.add("GET", "/v1/operations/{id}", [&](http::Exchange& e) -> Task<> {
    co_return co_await e.reply(http::json_response(
        200, R"({"id":"x","state":"failed","error":{"code":"node_full","detail":"no room","next":"delete some","status":429}})"));
  });
  serve(router);
  const auto done = run(api_->finish("x"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, "node_full");
  EXPECT_EQ(done.error().next, "delete some");
  EXPECT_EQ(done.error().kind, ErrorKind::resource_exhausted);
}

TEST(EventIds, CompareByEpochFirst) {
  EXPECT_EQ(compare_event_ids("1.9", "1.10"), -1);
  EXPECT_EQ(compare_event_ids("2.1", "1.10"), 1);
  EXPECT_EQ(compare_event_ids("7", "7"), 0);
  for (const char* wrong : {"", "x", "1.", ".1", "1.2.3", "-1", "1.99999999999999999999999"})
    EXPECT_EQ(compare_event_ids(wrong, "1.1"), std::nullopt) << wrong;
}

TEST(Url, TakesNamesAndLiteralsAndRefusesTheRest) {
  const auto six = parse_url("https://[::1]:7443/");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, 7443);
  EXPECT_TRUE(six->tls);
  EXPECT_EQ(parse_url("http://host")->port, 80);
  for (const char* wrong :
       {"", "host:1", "ftp://h", "http://", "http://h:0", "http://h:x", "http://h/path", "http://u@h", "http://h:99999"})
    EXPECT_FALSE(parse_url(wrong)) << wrong;
}

TEST(Target, EscapesWhatItIsGiven) {
  EXPECT_EQ(TargetBuilder("/v1/x").segment("a/b").query("path", "/ü &").query_if("user", "").str(), "/v1/x/a%2Fb?path=%2F%C3%BC%20%26");
}

}  // namespace
}  // namespace space::cli
