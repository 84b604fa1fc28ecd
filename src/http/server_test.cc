#include "http/server.h"

#include <boost/asio/local/stream_protocol.hpp>
#include <sys/socket.h>

#include "http/sse.h"
#include "http/test_support.h"

namespace space::http {
namespace {

using namespace test;
constexpr const char* kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr const char* kLastGet = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

TEST(Server, AnswersOnTcpAndUnixSocketsAndKnowsThePeer) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const auto who = [](Exchange& exchange) -> Task<> {
      const Peer& peer = exchange.peer();
      const std::string name = peer.credentials ? "uid " + std::to_string(peer.credentials->uid) : peer.address;
      co_return co_await exchange.reply(json_response(200, name));
    };
    RunningServer server(executor, who);
    const auto dir = TempDir::make("/tmp", "space-test-").value();
    const std::string path = dir.path() / "s.sock";
    EXPECT_TRUE(server.server.serve(listen_unix(path, SOCK_STREAM, 0600).value()));
    Client tcp(executor, tcp_connector("localhost", server.port));
    EXPECT_EQ((co_await tcp.call(Request())).value().body, "127.0.0.1");
    Client local(executor, unix_connector(path));
    EXPECT_EQ((co_await local.call(Request())).value().body, "uid " + std::to_string(::getuid()));
    EXPECT_EQ(server.server.connections(), 2U);
  });
}

TEST(Server, PipelinedRequestsAreAnsweredOneAfterAnother) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    int running = 0;
    const Handler slow = [&](Exchange& exchange) -> Task<> {
      EXPECT_EQ(++running, 1);
      co_await sleep_for(milliseconds(5));
      --running;
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, slow);
    std::string all;
    for (int i = 0; i < 20; ++i) all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    const std::string seen = co_await raw_exchange(executor, server.port, all + kLastGet);
    std::size_t at = 0;
    for (int i = 0; i < 20; ++i) {
      at = seen.find("POST /" + std::to_string(i) + " hi", at);
      EXPECT_NE(at, seen.npos) << i;
    }
    EXPECT_NE(seen.find("GET /last ", at), seen.npos);
  });
}

TEST(Server, WhatBreaksHttpIsRefusedAndClosed) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningServer server(executor, echo);
    const auto check = [&](std::string request, std::string status, std::string code) -> asio::awaitable<void> {
      const std::string seen = co_await raw_exchange(executor, server.port, request);
      EXPECT_TRUE(seen.starts_with("HTTP/1.1 " + status)) << request << "\n" << seen;
      EXPECT_NE(seen.find("application/problem+json"), seen.npos);
      EXPECT_NE(seen.find("Connection: close"), seen.npos);
      EXPECT_NE(seen.find("\"code\":\"" + code + "\""), seen.npos) << seen;
      EXPECT_EQ(seen.find("}HTTP/1.1 "), seen.npos) << "what followed was taken for another request";
    };
    const std::string smuggled = std::string("0\r\n\r\n") + kGet;
    co_await check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled, "400",
                   "bad_message");
    co_await check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + smuggled, "400", "bad_message");
    co_await check("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZ\r\n" + smuggled, "400", "bad_message");
    co_await check("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n" + smuggled, "400", "bad_message");
    co_await check("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n" + smuggled, "400", "bad_message");
    co_await check("GET / HTTP/1.1\nHost: a\n\n" + smuggled, "400", "bad_message");
    co_await check("GET / HTTP/1.1\r\n\r\n" + smuggled, "400", "bad_message");
    co_await check("\x16\x03\x01\x02garbage\r\n", "400", "bad_message");
    co_await check("GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n", "400", "bad_target");
    co_await check("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "bad_target");
    co_await check("GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", "414", "target_too_long");
    co_await check("GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", "414", "target_too_long");
    co_await check("GET / HTTP/1.1\r\nHost: a\r\nA: " + std::string(100'000, 'a'), "431", "headers_too_large");
    std::string flood = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 0; i < 200; ++i) flood += "A: b\r\n";
    co_await check(flood + "\r\n", "431", "headers_too_large");
    co_await check("GET / HTTP/3.0\r\nHost: a\r\n\r\n", "505", "version_not_supported");
    co_await check("GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", "417", "expectation_failed");
    co_await check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nabc", "413", "body_too_large");
  });
}

TEST(Server, SlowClientsAreCut) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Options options;
    options.head_timeout = options.body_timeout = milliseconds(80);
    options.idle_timeout = milliseconds(150);
    RunningServer server(executor, echo, options);
    RawClient silent(executor, server.port);
    EXPECT_EQ(co_await silent.read_to_end(), "");
    RawClient trickling(executor, server.port);
    for (const char c : std::string("GET / HT")) {
      co_await trickling.send(std::string(1, c));
      co_await sleep_for(milliseconds(15));
    }
    EXPECT_TRUE((co_await trickling.read_to_end()).starts_with("HTTP/1.1 408 "));
    const std::string body = co_await raw_exchange(executor, server.port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    EXPECT_TRUE(body.starts_with("HTTP/1.1 408 ")) << body;
    const auto begin = asio::steady_timer::clock_type::now();
    const std::string idle = co_await raw_exchange(executor, server.port, kGet);
    EXPECT_TRUE(idle.starts_with("HTTP/1.1 200 "));
    EXPECT_GE(asio::steady_timer::clock_type::now() - begin, milliseconds(140));
  });
}

TEST(Server, AReaderThatTakesNothingIsCut) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Options options;
    options.body_timeout = milliseconds(100);
    std::string ended;
    const Handler endless = [&](Exchange& exchange) -> Task<> {
      const std::string piece(256 << 10, 'x');
      CO_TRY_VOID(co_await exchange.start(200, Headers()));
      for (;;) {
        auto written = co_await exchange.write(as_bytes(piece));
        if (written) continue;
        ended = written.error().code;
        co_return written;
      }
    };
    RunningServer server(executor, endless, options);
    RawClient client(executor, server.port);
    co_await client.send(kGet);
    while (ended.empty()) co_await sleep_for(milliseconds(20));
    EXPECT_EQ(ended, "client_too_slow");
  });
}

TEST(Server, HalfClosedClientsStillGetTheirAnswer) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler slow = [](Exchange& exchange) -> Task<> {
      co_await sleep_for(milliseconds(20));
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, slow);
    RawClient client(executor, server.port);
    co_await client.send(kGet);
    client.half_close();
    EXPECT_TRUE((co_await client.read_to_end()).ends_with("GET /x "));
    RawClient partial(executor, server.port);
    co_await partial.send("GET / HTTP/1.1\r\nHo");
    partial.half_close();
    EXPECT_TRUE((co_await partial.read_to_end()).starts_with("HTTP/1.1 400 "));
    RawClient body(executor, server.port);
    co_await body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    body.half_close();
    EXPECT_TRUE((co_await body.read_to_end()).starts_with("HTTP/1.1 499 "));
  });
}

TEST(Server, ContinueIsSaidWhenTheBodyIsWantedAndOnlyThen) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler picky = [](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/no") co_return fail(ErrorKind::permission_denied, "not_you", "no");
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, picky);
    RawClient client(executor, server.port);
    co_await client.send("POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(co_await client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    co_await client.send("abc");
    EXPECT_TRUE((co_await client.read_until("abc")).starts_with("HTTP/1.1 200 "));
    const std::string refused =
        co_await raw_exchange(executor, server.port, "POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 403 ")) << refused;
    EXPECT_NE(refused.find("Connection: close"), refused.npos);
  });
}

TEST(Server, UnreadBodiesAreDrainedWhenShortAndCloseTheConnectionWhenLong) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler deaf = [](Exchange& exchange) -> Task<> { co_return co_await exchange.reply(json_response(200, exchange.target().raw)); };
    RunningServer server(executor, deaf);
    const std::string short_body = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'b') + kLastGet;
    EXPECT_TRUE((co_await raw_exchange(executor, server.port, short_body)).ends_with("/last"));
    const std::string long_body = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + std::string(3'000'000, 'b') + kLastGet;
    const std::string seen = co_await raw_exchange(executor, server.port, long_body);
    EXPECT_TRUE(seen.ends_with("/a")) << seen;
    EXPECT_NE(seen.find("Connection: close"), seen.npos);
  });
}

TEST(Server, HeadAnswersCarryTheLengthAndNoBody) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Router router;
    router.add("GET", "/x", [](Exchange& exchange) -> Task<> { co_return co_await exchange.reply(json_response(200, "12345")); });
    router.add("GET", "/s", [](Exchange& exchange) -> Task<> {
      CO_TRY_VOID(co_await exchange.start(200, Headers(), 5));
      CO_TRY_VOID(co_await exchange.write(as_bytes(std::string_view("12345"))));
      co_return co_await exchange.finish();
    });
    RunningServer server(executor, router);
    for (const char* path : {"/x", "/s"}) {
      RawClient client(executor, server.port);
      co_await client.send(std::string("HEAD ") + path + " HTTP/1.1\r\nHost: a\r\n\r\n" + kLastGet);
      const std::string seen = co_await client.read_until("\r\n\r\n");
      EXPECT_NE(seen.find("Content-Length: 5\r\n"), seen.npos);
      EXPECT_TRUE((co_await client.read_to_end()).starts_with("HTTP/1.1 404 "));
    }
  });
}

TEST(Server, StreamsEndWithTheLastChunkAtOnceAndHttp10WithTheConnection) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler stream = [](Exchange& exchange) -> Task<> {
      CO_TRY_VOID(co_await exchange.start(200, Headers()));
      CO_TRY_VOID(co_await exchange.write(as_bytes(std::string_view("hello"))));
      CO_TRY_VOID(co_await exchange.write({}));
      co_return co_await exchange.finish();
    };
    RunningServer server(executor, stream);
    RawClient client(executor, server.port);
    co_await client.send(kGet);
    EXPECT_TRUE((co_await client.read_until("0\r\n\r\n")).ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
    const std::string old = co_await raw_exchange(executor, server.port, "GET / HTTP/1.0\r\n\r\n");
    EXPECT_TRUE(old.ends_with("\r\n\r\nhello")) << old;
    EXPECT_EQ(old.find("chunked"), old.npos);
  });
}

TEST(Server, ErrorsOfHandlersBecomeProblemsBeforeTheAnswerAndAResetAfterIt) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler failing = [](Exchange& exchange) -> Task<> {
      const std::string path = exchange.target().raw;
      if (path == "/early") co_return fail(ErrorKind::conflict, "sandbox_busy", "it is busy", "wait");
      if (path == "/nothing") co_return Result<>();
      if (path == "/throws") throw std::runtime_error("boom");
      if (path == "/split") {
        Response response;
        response.headers.add("X-Name", "a\r\nSet-Cookie: b");
        co_return co_await exchange.reply(response);
      }
      if (path == "/sized") {
        CO_TRY_VOID(co_await exchange.start(200, Headers(), 100));
      } else {
        CO_TRY_VOID(co_await exchange.start(200, Headers()));
      }
      CO_TRY_VOID(co_await exchange.write(as_bytes(std::string_view("half"))));
      if (path == "/unfinished") co_return Result<>();
      if (path == "/sized") co_return co_await exchange.finish();
      co_return fail(ErrorKind::internal, "late", "too late");
    };
    RunningServer server(executor, failing);
    const std::string early = co_await raw_exchange(executor, server.port, "GET /early HTTP/1.0\r\n\r\n");
    EXPECT_TRUE(early.starts_with("HTTP/1.1 409 "));
    EXPECT_NE(early.find(R"("code":"sandbox_busy","detail":"it is busy","next":"wait")"), early.npos) << early;
    EXPECT_TRUE((co_await raw_exchange(executor, server.port, "GET /nothing HTTP/1.0\r\n\r\n")).starts_with("HTTP/1.1 500 "));
    const std::string split = co_await raw_exchange(executor, server.port, "GET /split HTTP/1.0\r\n\r\n");
    EXPECT_TRUE(split.starts_with("HTTP/1.1 500 "));
    EXPECT_EQ(split.find("Set-Cookie"), split.npos);
    for (const char* path : {"/late", "/unfinished", "/sized", "/throws"}) {
      RawClient client(executor, server.port);
      co_await client.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n\r\n");
      co_await client.read_to_end();
      EXPECT_TRUE(client.reset) << path;
    }
    EXPECT_TRUE((co_await raw_exchange(executor, server.port, "GET /early HTTP/1.0\r\n\r\n")).starts_with("HTTP/1.1 409 "))
        << "nobody else notices";
  });
}

TEST(Server, StreamsNoticeThatTheirReaderVanished) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    int ended = 0;
    const Handler events = [&](Exchange& exchange) -> Task<> {
      SseWriter writer(exchange);
      CO_TRY_VOID(co_await writer.start());
      const auto wait_for_ever = []() -> Task<> {
        for (;;) co_await sleep_for(std::chrono::hours(1));
      };
      const auto result = co_await until_disconnected(exchange, wait_for_ever());
      EXPECT_EQ(result.error().code, "client_gone");
      ++ended;
      co_return result;
    };
    Options options;
    options.half_closed_timeout = milliseconds(50);
    RunningServer server(executor, events, options);
    for (int how = 0; how < 3; ++how) {
      RawClient client(executor, server.port);
      co_await client.send(kGet);
      if (how == 2) co_await client.send(kGet);  // one that pipelines and then leaves
      EXPECT_TRUE((co_await client.read_until("\r\n\r\n")).find("text/event-stream") != std::string::npos);
      if (how == 0)
        client.close();
      else
        client.cut();
      while (ended <= how) co_await sleep_for(milliseconds(2));
    }
    while (server.server.connections() > 0) co_await sleep_for(milliseconds(2));
  });
}

// What waits for its client's end, as forwarding and event streams do.
Task<> watched(Exchange& exchange, int& gone) {
  const auto work = [](Exchange& e) -> Task<> {
    const std::string path = e.target().raw;
    if (path == "/late") {
      co_await sleep_for(milliseconds(100));
      co_return co_await echo(e);
    }
    CO_TRY_VOID(co_await e.start(200, Headers()));
    for (int i = 0; path != "/beats" || i < 30; ++i) {
      co_await sleep_for(milliseconds(20));
      if (path != "/silent") CO_TRY_VOID(co_await e.write(as_bytes(std::string_view("beat;"))));
    }
    co_return co_await e.finish();
  };
  auto done = co_await until_disconnected(exchange, work(exchange));
  if (!done) {
    EXPECT_EQ(done.error().code, "client_gone");
    ++gone;
  }
  co_return done;
}

std::string get_of(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"; }

TEST(Server, AHalfClosedClientIsAnsweredWhatItWaitsFor) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    int gone = 0;
    Options options;
    options.half_closed_timeout = milliseconds(300);
    RunningServer server(
        executor, [&gone](Exchange& exchange) { return watched(exchange, gone); }, options);
    RawClient late(executor, server.port);
    co_await late.send(get_of("/late"));
    late.half_close();
    EXPECT_TRUE((co_await late.read_to_end()).ends_with("GET /late "));
    EXPECT_FALSE(late.reset);
    RawClient beats(executor, server.port);  // longer than the limit, with something each time before it is over
    co_await beats.send(get_of("/beats"));
    beats.half_close();
    EXPECT_TRUE((co_await beats.read_to_end()).ends_with("beat;\r\n0\r\n\r\n"));
    EXPECT_EQ(gone, 0);
    RawClient silent(executor, server.port);
    co_await silent.send(get_of("/silent"));
    silent.half_close();
    co_await silent.read_to_end();
    EXPECT_TRUE(silent.reset) << "nothing was sent to it for too long";
    EXPECT_EQ(gone, 1);
    while (server.server.connections() > 0) co_await sleep_for(milliseconds(2));
  });
}

TEST(Server, AClosedClientIsNoticedByWhatIsSentToItOrByItsSocket) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    int gone = 0;
    Options options;
    options.half_closed_timeout = std::chrono::hours(1);
    RunningServer server(
        executor, [&gone](Exchange& exchange) { return watched(exchange, gone); }, options);
    RawClient tcp(executor, server.port);
    co_await tcp.send(get_of("/endless"));
    co_await tcp.read_until("beat;\r\n");
    tcp.close();
    while (gone < 1) co_await sleep_for(milliseconds(2));

    const auto dir = TempDir::make("/tmp", "space-test-").value();
    const std::string path = dir.path() / "s.sock";
    EXPECT_TRUE(server.server.serve(listen_unix(path, SOCK_STREAM, 0600).value()));
    asio::local::stream_protocol::socket local(executor);
    local.connect(asio::local::stream_protocol::endpoint(path));
    co_await asio::async_write(local, asio::buffer(get_of("/silent")), kAsTuple);
    std::array<char, 4096> room;
    co_await local.async_read_some(asio::buffer(room), kAsTuple);
    local.shutdown(asio::local::stream_protocol::socket::shutdown_send);
    co_await sleep_for(milliseconds(100));
    EXPECT_EQ(gone, 1) << "it may still read";
    local.close();
    while (gone < 2) co_await sleep_for(milliseconds(2));

    // Whoever gives up an exchange of ours says so, also where nothing is sent to it.
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    Request request;
    request.target = "/silent";
    auto stream = (co_await client.open(request)).value();
    EXPECT_TRUE(co_await stream->head());
    stream.reset();
    while (gone < 3) co_await sleep_for(milliseconds(2));
    while (server.server.connections() > 0) co_await sleep_for(milliseconds(2));
  });
}

TEST(Server, KeepsTheConnectionAfterAWaitThatEndedByItself) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler waits = [](Exchange& exchange) -> Task<> {
      const auto work = []() -> Task<> {
        co_await sleep_for(milliseconds(10));
        co_return Result<>();
      };
      CO_TRY_VOID(co_await until_disconnected(exchange, work()));
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, waits);
    RawClient client(executor, server.port);
    for (int i = 0; i < 3; ++i) {
      co_await client.send(kGet);
      EXPECT_TRUE((co_await client.read_until("GET /x ")).starts_with("HTTP/1.1 200 "));
    }
    co_await client.send(std::string(kGet) + kLastGet);
    EXPECT_TRUE((co_await client.read_to_end()).ends_with("GET /last "));
  });
}

TEST(Server, RefusesMoreConnectionsThanItMayHave) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Options options;
    options.max_connections = 2;
    bool over = false;
    const Handler waits = [&over](Exchange& exchange) -> Task<> {
      while (!over && exchange.target().raw == "/x") co_await sleep_for(milliseconds(2));
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, waits, options);
    RawClient a(executor, server.port), b(executor, server.port);
    co_await a.send(kGet);
    co_await b.send(kGet);
    co_await sleep_for(milliseconds(50));
    RawClient c(executor, server.port);
    EXPECT_TRUE((co_await c.read_until("\r\n\r\n")).starts_with("HTTP/1.1 503 "));
    over = true;
    EXPECT_TRUE((co_await a.read_until("/x ")).starts_with("HTTP/1.1 200 "));
    EXPECT_TRUE((co_await b.read_until("/x ")).starts_with("HTTP/1.1 200 "));
  });
}

TEST(Server, OneThatAsksForNothingGivesWay) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Options options;
    options.max_connections = 2;
    RunningServer server(executor, echo, options);
    RawClient served(executor, server.port);
    co_await served.send(kGet);
    co_await served.read_until("/x ");
    std::vector<std::unique_ptr<RawClient>> silent;
    for (int i = 0; i < 20; ++i) {
      silent.push_back(std::make_unique<RawClient>(executor, server.port));
      co_await silent.back()->send(i % 2 == 0 ? "" : "GET /unfinished HTTP/1.1\r\nHost:");
      co_await sleep_for(milliseconds(5));
      EXPECT_LE(server.server.connections(), 2U);
    }
    RawClient client(executor, server.port);
    co_await client.send(kGet);
    EXPECT_TRUE((co_await client.read_until("/x ")).starts_with("HTTP/1.1 200 "));
    EXPECT_EQ(co_await served.read_to_end(), "") << "the one that waited longest went first";
  });
}

// Whoever was refused before its body came may send it late, but holds no place by that.
TEST(Server, AnAnsweredBodyThatTricklesGivesWayAndEndsSoon) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Options options;
    options.max_connections = 2;
    const Handler refuses = [](Exchange& exchange) -> Task<> {
      if (exchange.method() == "POST") co_return fail(ErrorKind::permission_denied, "key_missing", "no");
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, refuses, options);
    RawClient a(executor, server.port), b(executor, server.port);
    for (RawClient* client : {&a, &b}) {
      co_await client->send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\nb");
      EXPECT_TRUE((co_await client->read_until("}")).starts_with("HTTP/1.1 403 "));
    }
    RawClient c(executor, server.port);
    co_await c.send(kGet);
    EXPECT_TRUE((co_await c.read_until("/x ")).starts_with("HTTP/1.1 200 ")) << "one of them gives way";
    co_await a.read_to_end();
    EXPECT_TRUE(a.reset) << "the one that was answered first";
    // The other has no need to, and ends all the same, however much it sends.
    const auto begin = asio::steady_timer::clock_type::now();
    while (server.server.connections() > 1 && asio::steady_timer::clock_type::now() - begin < std::chrono::seconds(10)) {
      co_await b.send("b");
      co_await sleep_for(milliseconds(50));
    }
    EXPECT_EQ(server.server.connections(), 1U);
  });
}

TEST(Server, StopsGentlyThenByForce) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    bool unwound = false;
    const Handler handler = [&](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/stuck") {
        struct Mark {
          bool& flag;
          ~Mark() { flag = true; }
        } mark{unwound};
        Signal never(co_await asio::this_coro::executor);
        for (;;) co_await never.wait();
      }
      co_await sleep_for(milliseconds(50));
      co_return co_await echo(exchange);
    };
    RunningServer server(executor, handler);
    RawClient idle(executor, server.port), busy(executor, server.port), stuck(executor, server.port);
    co_await idle.send(kGet);
    co_await idle.read_until("/x ");
    co_await busy.send(kGet);
    co_await stuck.send("GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n");
    co_await sleep_for(milliseconds(10));
    co_await server.server.stop(milliseconds(150));
    EXPECT_EQ(server.server.connections(), 0U);
    EXPECT_TRUE(unwound);
    EXPECT_EQ(co_await idle.read_to_end(), "");
    const std::string answer = co_await busy.read_to_end();
    EXPECT_TRUE(answer.ends_with("GET /x ")) << answer;
    EXPECT_NE(answer.find("Connection: close"), answer.npos);
    co_await stuck.read_to_end();
    EXPECT_TRUE(stuck.reset);
  });
}

TEST(Server, MayBeDestroyedWithOpenExchangesBeforeOrWithItsLoop) {
  for (const bool with_loop : {false, true}) {
    asio::io_context loop(1);
    auto server = std::make_unique<RunningServer>(loop.get_executor(), [](Exchange& exchange) -> Task<> {
      CO_TRY_VOID(co_await exchange.start(200, Headers()));
      co_await exchange.disconnected();
      co_await sleep_for(std::chrono::hours(1));
      co_return Result<>();
    });
    RawClient client(loop.get_executor(), server->port), fresh(loop.get_executor(), server->port);
    asio::co_spawn(loop, client.send(kGet), asio::detached);
    loop.run_for(milliseconds(30));
    if (with_loop) continue;  // the server goes with everything else at the end of this block
    server.reset();
    loop.run_for(milliseconds(10));
  }
}

TEST(Server, DetachHandsOverTheSocketAndWhatWasReadBeyond) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler upgrade = [](Exchange& exchange) -> Task<> {
      CO_TRY(auto detached, exchange.detach());
      EXPECT_EQ(detached.surplus, "surplus");
      EXPECT_EQ(::send(detached.socket.get(), "raw", 3, MSG_NOSIGNAL), 3);
      co_return Result<>();
    };
    RunningServer server(executor, upgrade);
    EXPECT_EQ(co_await raw_exchange(executor, server.port, std::string(kGet) + "surplus"), "raw");
  });
}

}  // namespace
}  // namespace space::http
