#include "http/proxy.h"

#include <fstream>

#include "http/sse.h"
#include "http/test_support.h"

namespace space::http {
namespace {

using namespace test;

// front → back, both on one loop.
struct Chain {
  Chain(const asio::any_io_executor& executor, Handler back_handler, Options front_options = {}, ClientOptions client_options = {})
      : back(executor, std::move(back_handler)),
        client(executor, tcp_connector("127.0.0.1", back.port), client_options),
        front(
            executor,
            [this](Exchange& exchange) -> Task<> {
              ProxyOptions options;
              options.target = "/back" + exchange.target().raw;
              options.set_headers.add("Space-Tenant", "t1");
              options.drop_headers = {"Authorization"};
              options.event_stream = exchange.target().raw == "/events";
              options.upgrade = true;
              options.slow_body = exchange.target().raw == "/stdin";
              auto result = co_await forward(exchange, client, std::move(options));
              last = result ? "ok" : result.error().code;
              co_return result;
            },
            front_options) {}
  RunningServer back;
  Client client;
  RunningServer front;
  std::string last;
};

TEST(Proxy, ForwardsHeadersBodiesAndStatus) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      CO_TRY(std::string body, co_await exchange.read_body(1 << 20));
      std::string seen;
      for (const auto& [name, value] : exchange.headers().fields()) seen += name + "=" + value + ";";
      Response response = json_response(201, exchange.method() + " " + exchange.target().raw + " " + body + " " + seen);
      response.headers.add("X-Back", "yes");
      co_return co_await exchange.reply(std::move(response));
    };
    Chain chain(executor, back);
    RawClient client(executor, chain.front.port);
    co_await client.send(
        "POST /x?a=b HTTP/1.1\r\nHost: front\r\nConnection: X-Secret, keep-alive\r\nX-Secret: s\r\nAuthorization: k\r\nspace-tenant: "
        "forged\r\n"
        "X-Kept: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    const std::string head = co_await client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 201 ")) << head;
    EXPECT_NE(head.find("X-Back: yes\r\n"), head.npos);
    EXPECT_EQ(head.find("Server: space\r\n"), head.rfind("Server: space\r\n"));
    const std::string body = co_await client.read_until("t1;");
    EXPECT_TRUE(body.starts_with("POST /back/x?a=b abc Host=localhost;X-Kept=1;")) << body;
    EXPECT_EQ(body.find("X-Secret"), body.npos);
    EXPECT_EQ(body.find("forged"), body.npos);
    EXPECT_EQ(body.find("Authorization"), body.npos);
  });
}

TEST(Proxy, HeadAndErrorsPassThrough) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/back/missing")
        co_return fail(ErrorKind::not_found, "no_such_file", "it is not there", "look elsewhere");
      co_return co_await exchange.reply(json_response(200, "12345"));
    };
    Chain chain(executor, back);
    Client client(executor, tcp_connector("127.0.0.1", chain.front.port));
    Request request;
    request.method = "HEAD";
    request.target = "/x";
    const auto response = (co_await client.call(request)).value();
    EXPECT_EQ(response.headers.get("Content-Length"), "5");
    request.method = "GET";
    request.target = "/missing";
    const auto missing = co_await client.call(request);
    EXPECT_EQ(missing.error().code, "no_such_file");
    EXPECT_EQ(missing.error().next, "look elsewhere");
    EXPECT_EQ(chain.front.server.connections(), 1U) << "the connection is kept through all of that";
  });
}

// A WebSocket's handshake and bytes go through, both ways, and an end on either side ends both.
TEST(Proxy, CarriesAWebSocket) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/back/refuses") co_return fail(ErrorKind::permission_denied, "no", "no sockets here");
      if (wanted_upgrade(exchange) != "websocket") co_return fail(ErrorKind::invalid_argument, "no_upgrade", "asked for nothing");
      Headers headers;
      headers.add("Sec-WebSocket-Accept", std::string(exchange.headers().get("Sec-WebSocket-Key")) + "!");
      CO_TRY(const auto stream, co_await exchange.upgrade("websocket", std::move(headers)));
      std::array<std::byte, 64> room;
      for (;;) {
        CO_TRY(const std::size_t n, co_await stream->read(room));
        if (n == 0) break;
        const std::string answer = "<" + std::string(as_text(std::span(room).first(n))) + ">";
        CO_TRY_VOID(co_await stream->write(as_bytes(answer)));
      }
      CO_TRY_VOID(co_await stream->write(as_bytes(std::string_view("bye"))));
      co_return Result<>();
    };
    Chain chain(executor, back);
    const std::string ask =
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n\r\n";
    RawClient client(executor, chain.front.port);
    co_await client.send(ask + "early");
    const std::string head = co_await client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 101 ")) << head;
    EXPECT_NE(head.find("Upgrade: websocket\r\n"), head.npos) << head;
    EXPECT_NE(head.find("Sec-WebSocket-Accept: k!\r\n"), head.npos) << head;
    EXPECT_EQ(co_await client.read_until("<early>"), "<early>");
    co_await client.send("later");
    EXPECT_EQ(co_await client.read_until("<later>"), "<later>");
    client.close();
    while (chain.back.server.connections() > 0 || chain.front.server.connections() > 0) co_await sleep_for(milliseconds(2));

    RawClient refused(executor, chain.front.port);
    co_await refused.send("GET /refuses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    EXPECT_TRUE((co_await refused.read_until("\r\n\r\n")).starts_with("HTTP/1.1 403 "));
    // Another protocol is not passed on as an upgrade.
    RawClient other(executor, chain.front.port);
    co_await other.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    EXPECT_TRUE((co_await other.read_until("\r\n\r\n")).starts_with("HTTP/1.1 400 "));
  });
}

TEST(Proxy, CarriesTargetsThatAreNoneOfOurs) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> { co_return co_await exchange.reply(json_response(200, exchange.target().raw)); };
    Options any;
    any.any_target = true;
    RunningServer server(executor, back, any);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    for (const char* target : {"/a//b/", "/../x", "/", "//host/x", "/%00?a=%zz"}) {
      Request request;
      request.target = target;
      const auto response = co_await client.call(request);
      EXPECT_EQ(response ? response->body : response.error().code, target);
    }
    const Router router;
    RunningServer routed(
        executor, [&router](Exchange& exchange) { return router(exchange); }, any);
    Client other(executor, tcp_connector("127.0.0.1", routed.port));
    Request request;
    request.target = "/a//b";
    const auto refused = co_await other.call(request);
    EXPECT_EQ(refused.error().code, "bad_target");
  });
}

TEST(Proxy, AClientThatGoesAwayCancelsTheOtherSide) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    int cancelled = 0;
    const Handler back = [&](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/back/upload") {
        const auto body = co_await exchange.read_body(1 << 20);
        EXPECT_EQ(body.error().code, "client_gone");
      } else {
        if (exchange.target().raw == "/back/events") CO_TRY_VOID(co_await exchange.start(200, Headers()));
        co_await exchange.disconnected();
      }
      ++cancelled;
      co_return fail(ErrorKind::cancelled, "gone", "gone");
    };
    Options hasty;
    hasty.half_closed_timeout = milliseconds(50);
    Chain chain(executor, back, hasty);
    int expected = 0;
    for (const char* request : {"GET /events HTTP/1.1\r\nHost: a\r\n\r\n", "GET /head HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /head HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                                "GET /events HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                                "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc",
                                "PUT /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
      RawClient client(executor, chain.front.port);
      co_await client.send(request);
      co_await sleep_for(milliseconds(20));
      client.close();
      ++expected;
      while (cancelled < expected) co_await sleep_for(milliseconds(2));
      EXPECT_EQ(chain.last, "client_gone") << request;
    }
    while (chain.back.server.connections() > 0) co_await sleep_for(milliseconds(2));
  });
}

TEST(Proxy, AHalfClosedClientGetsItsAnswer) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      co_await sleep_for(milliseconds(100));
      co_return co_await echo(exchange);
    };
    Chain chain(executor, back);
    for (const char* request : {"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                                "PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}) {
      RawClient client(executor, chain.front.port);
      co_await client.send(request);
      client.half_close();
      const std::string seen = co_await client.read_to_end();
      EXPECT_TRUE(seen.starts_with("HTTP/1.1 200 ")) << request << "\n" << seen;
      EXPECT_NE(seen.find(" /back/x "), seen.npos) << seen;
      EXPECT_FALSE(client.reset);
      EXPECT_EQ(chain.last, "ok");
    }
  });
}

TEST(Proxy, ACutAnswerIsNeverATidyEnd) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      CO_TRY_VOID(co_await exchange.start(200, Headers(),
                                          exchange.target().raw == "/back/sized" ? std::optional<std::uint64_t>(100) : std::nullopt));
      CO_TRY_VOID(co_await exchange.write(as_bytes(std::string_view("half"))));
      co_await sleep_for(milliseconds(10));
      exchange.abort();
      co_return Result<>();
    };
    Chain chain(executor, back);
    for (const char* path : {"/sized", "/chunked"}) {
      RawClient client(executor, chain.front.port);
      co_await client.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n\r\n");
      const std::string seen = co_await client.read_to_end();
      EXPECT_TRUE(client.reset) << seen;
      EXPECT_EQ(seen.find("\r\n0\r\n\r\n"), seen.npos);
    }
    const Handler silent = [](Exchange& exchange) -> Task<> {
      exchange.abort();
      co_return Result<>();
    };
    Chain none(executor, silent);
    const std::string seen = co_await raw_exchange(executor, none.front.port, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(seen.starts_with("HTTP/1.1 503 ")) << seen;
  });
}

TEST(Proxy, AnEarlyAnswerReachesAClientThatStillSends) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange&) -> Task<> { co_return fail(ErrorKind::too_large, "body_too_large", "no"); };
    Chain chain(executor, back);
    Client client(executor, tcp_connector("127.0.0.1", chain.front.port));
    Request request;
    request.method = "PUT";
    request.target = "/x";
    request.body = std::string(20 << 20, 'x');
    EXPECT_EQ((co_await client.call(request)).error().code, "body_too_large");
  });
}

TEST(Proxy, AnEventStreamHasNoTimeLimitBetweenEvents) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      SseWriter writer(exchange);
      CO_TRY_VOID(co_await writer.start());
      for (int i = 0; i < 3; ++i) {
        co_await sleep_for(milliseconds(100));
        SseEvent event{std::to_string(i), "tick", "x"};
        CO_TRY_VOID(co_await writer.send(event));
      }
      co_return co_await writer.finish();
    };
    ClientOptions hasty;
    hasty.body_timeout = milliseconds(30);
    Chain chain(executor, back, Options(), hasty);
    Client client(executor, tcp_connector("127.0.0.1", chain.front.port));
    Request request;
    request.target = "/events";
    const auto response = (co_await client.call(request)).value();
    SseReader reader;
    EXPECT_EQ(reader.feed(response.body).value().size(), 3U);
    request.target = "/other";
    EXPECT_FALSE(co_await client.call(request));
  });
}

TEST(Proxy, ASlowBodyHasNoTimeLimitBetweenPieces) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler back = [](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/back/stdin") exchange.set_read_timeout(milliseconds(0));
      co_return co_await echo(exchange);
    };
    Options hasty;
    hasty.body_timeout = milliseconds(30);
    Chain chain(executor, back, hasty);
    for (const char* path : {"/stdin", "/other"}) {
      RawClient client(executor, chain.front.port);
      co_await client.send("POST " + std::string(path) + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab");
      co_await sleep_for(milliseconds(100));
      co_await client.send("cd");
      const std::string seen = co_await client.read_to_end();
      EXPECT_TRUE(seen.starts_with(std::string(path) == "/stdin" ? "HTTP/1.1 200 " : "HTTP/1.1 408 ")) << seen;
    }
  });
}

std::size_t resident_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  return 0;
}

TEST(Proxy, CarriesLargeBodiesWithConstantMemoryWhenOneSideIsSlow) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const std::size_t total = 256 << 20;
    const Handler back = [&](Exchange& exchange) -> Task<> {
      std::vector<std::byte> piece(1 << 20);
      std::size_t got = 0, pauses = 0;
      for (;;) {
        CO_TRY(const std::size_t n, co_await exchange.read(piece));
        if (n == 0) break;
        got += n;
        if (got / (8 << 20) > pauses) {  // slower than what the client sends
          ++pauses;
          co_await sleep_for(milliseconds(5));
        }
      }
      co_return co_await exchange.reply(json_response(200, std::to_string(got)));
    };
    Chain chain(executor, back);
    Client client(executor, tcp_connector("127.0.0.1", chain.front.port));
    Request request;
    request.method = "PUT";
    request.target = "/x";
    auto stream = (co_await client.open(request, BodyKind::sized, total)).value();
    const std::vector<std::byte> piece(256 << 10);
    EXPECT_TRUE(co_await stream->write(piece));
    [[maybe_unused]] const std::size_t before = resident_kib();
    for (std::size_t sent = piece.size(); sent < total; sent += piece.size()) EXPECT_TRUE(co_await stream->write(piece));
    EXPECT_TRUE(co_await stream->finish_request());
    EXPECT_TRUE(co_await stream->head());
    EXPECT_EQ((co_await stream->read_all(100)).value(), std::to_string(total));
#ifndef SPACE_SANITIZED  // AddressSanitizer keeps for a while what is freed
    EXPECT_LT(resident_kib(), before + (16 << 10));
#endif
  });
}

}  // namespace
}  // namespace space::http
