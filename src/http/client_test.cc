#include "http/client.h"

#include "http/test_support.h"

namespace space::http {
namespace {

using namespace test;

// A server that answers each connection with a script of raw bytes, whatever is asked: first it waits for a head, then it sends.
class RawServer {
 public:
  RawServer(const asio::any_io_executor& executor, std::vector<std::string> answers, bool close_after = true)
      : acceptor_(executor, {asio::ip::make_address("127.0.0.1"), 0}), answers_(std::move(answers)), close_(close_after) {
    asio::co_spawn(executor, serve(), asio::detached);
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  int connections = 0, requests = 0;

 private:
  asio::awaitable<void> serve() {
    for (;;) {
      auto [error, socket] = co_await acceptor_.async_accept(kAsTuple);
      if (error) co_return;
      ++connections;
      held_.push_back(std::make_unique<asio::ip::tcp::socket>(std::move(socket)));
      asio::co_spawn(acceptor_.get_executor(), talk(*held_.back()), asio::detached);
    }
  }
  asio::awaitable<void> talk(asio::ip::tcp::socket& socket) {
    std::string seen;
    for (;;) {
      char piece[4096];
      const auto [error, n] = co_await socket.async_read_some(asio::buffer(piece), kAsTuple);
      if (error) co_return;
      seen.append(piece, n);
      if (seen.find("\r\n\r\n") == seen.npos) continue;
      seen.clear();
      const std::string answer = answers_[std::min<std::size_t>(static_cast<std::size_t>(requests++), answers_.size() - 1)];
      co_await asio::async_write(socket, asio::buffer(answer), kAsTuple);
      if (close_) break;
    }
    socket.shutdown(asio::ip::tcp::socket::shutdown_send);
  }
  asio::ip::tcp::acceptor acceptor_;
  std::vector<std::string> answers_;
  bool close_;
  std::vector<std::unique_ptr<asio::ip::tcp::socket>> held_;
};

ClientOptions hasty() {
  ClientOptions options;
  options.connect_timeout = options.head_timeout = options.body_timeout = milliseconds(100);
  return options;
}

TEST(Client, KeepsConnectionsAndReplacesThemWhenTheOtherEndIsReplaced) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    int connections = 0;
    auto server = std::make_unique<RunningServer>(executor, echo);
    std::uint16_t port = server->port;
    const Connector connector = [&]() -> Task<Fd> {
      ++connections;
      co_return co_await tcp_connector("127.0.0.1", port)();
    };
    Client client(executor, connector);
    Request request;
    request.method = "POST";
    request.body = "abc";
    for (int i = 0; i < 5; ++i) EXPECT_EQ((co_await client.call(request)).value().body, "POST / abc");
    EXPECT_EQ(connections, 1);
    client.close_idle();
    EXPECT_TRUE(co_await client.call(request));
    EXPECT_EQ(connections, 2);
    server = std::make_unique<RunningServer>(executor, echo);  // the kept connection is dead now
    port = server->port;
    EXPECT_TRUE(co_await client.call(request)) << "it was known to be dead before anything was sent";
    EXPECT_EQ(connections, 3);
  });
}

TEST(Client, RepeatsOnlyWhatMayBeRepeated) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (const char* method : {"GET", "PUT", "POST"}) {
      // The first answer keeps the connection, the second request gets none: the server closed just then.
      int turn = 0;
      asio::ip::tcp::acceptor acceptor(executor, {asio::ip::make_address("127.0.0.1"), 0});
      asio::co_spawn(
          executor,
          [](asio::ip::tcp::acceptor& a, int& turns, std::string answer) -> asio::awaitable<void> {
            for (;;) {
              auto [error, socket] = co_await a.async_accept(kAsTuple);
              if (error) co_return;
              for (int requests = 0;; ++requests) {
                char piece[4096];
                const auto [failed, n] = co_await socket.async_read_some(asio::buffer(piece), kAsTuple);
                if (failed) break;
                if (turns++ == 1) break;
                co_await asio::async_write(socket, asio::buffer(answer), kAsTuple);
              }
            }
          }(acceptor, turn, ok),
          asio::detached);
      Client client(executor, tcp_connector("127.0.0.1", acceptor.local_endpoint().port()), hasty());
      Request request;
      request.method = method;
      if (request.method != "GET") request.body = "x";
      EXPECT_TRUE(co_await client.call(request));
      const auto second = co_await client.call(request);
      if (request.method == "POST") {
        EXPECT_EQ(second.error().code, "connection_lost");
        EXPECT_NE(second.error().message.find("may have been carried out"), std::string::npos);
      } else {
        EXPECT_TRUE(second) << method;
      }
      acceptor.close();
      co_await sleep_for(milliseconds(5));
    }
  });
}

TEST(Client, HostileAnswersEndInClearErrors) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const auto code = [&](std::string answer, bool close = true, std::size_t limit = 1000) -> asio::awaitable<std::string> {
      RawServer server(executor, {answer}, close);
      Client client(executor, tcp_connector("127.0.0.1", server.port()), hasty());
      const auto response = co_await client.request(Request(), limit);
      co_return response ? "ok " + response->body : response.error().code;
    };
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), "ok ok");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\n\r\nto the end"), "ok to the end");
    EXPECT_EQ(co_await code("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "ok ");
    EXPECT_EQ(co_await code("", false), "answer_timeout");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nContent-Le", false), "answer_timeout");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", false), "answer_timeout");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), "answer_cut_off");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"), "answer_cut_off");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), "bad_answer");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "bad_answer");
    EXPECT_EQ(co_await code("SSH-2.0-OpenSSH_9.2\r\n"), "connection_lost");
    EXPECT_EQ(co_await code("SSH-2.0-OpenSSH_9.2\n"), "bad_answer");
    EXPECT_EQ(co_await code(""), "connection_lost");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nA: " + std::string(200'000, 'a')), "answer_head_too_large");
    EXPECT_EQ(co_await code("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, 'a')), "answer_too_large");
    std::string interim;
    for (int i = 0; i < 100; ++i) interim += "HTTP/1.1 100 Continue\r\n\r\n";
    EXPECT_EQ(co_await code(interim, false), "bad_answer");
  });
}

TEST(Client, ConnectingIsBoundedAndItsFailureNamed) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Client nobody(executor, unix_connector("/nonexistent/socket"));
    EXPECT_EQ((co_await nobody.call(Request())).error().kind, ErrorKind::unavailable);
    const std::uint16_t closed_port = local_port(listen_tcp("127.0.0.1", 0).value()).value();
    Client closed(executor, tcp_connector("127.0.0.1", closed_port));
    EXPECT_EQ((co_await closed.call(Request())).error().code, "connect_failed");
    const Connector never = []() -> Task<Fd> {
      co_await sleep_for(std::chrono::hours(1));
      co_return Fd();
    };
    Client slow(executor, never, hasty());
    EXPECT_EQ((co_await slow.call(Request())).error().code, "connect_timeout");
    Request split;
    split.target = "/ HTTP/1.1\r\nX: y\r\n\r\n";
    EXPECT_EQ((co_await slow.call(split)).error().code, "bad_target");
    split.target = "/";
    split.headers.add("A", "b\r\nC: d");
    EXPECT_EQ((co_await slow.call(split)).error().code, "bad_header_field");
  });
}

TEST(Client, AnEarlyAnswerCountsMoreThanTheUnsentBody) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler refuse = [](Exchange&) -> Task<> { co_return fail(ErrorKind::too_large, "body_too_large", "no"); };
    RunningServer server(executor, refuse);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    Request request;
    request.method = "PUT";
    request.body = std::string(20 << 20, 'x');
    EXPECT_EQ((co_await client.call(request)).error().code, "body_too_large");
  });
}

TEST(Client, StreamsBothWaysAndReusesTheConnection) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler mirror = [](Exchange& exchange) -> Task<> {
      std::vector<std::byte> piece(10'000);
      CO_TRY_VOID(co_await exchange.start(200, Headers(), exchange.content_length()));
      for (;;) {
        CO_TRY(const std::size_t n, co_await exchange.read(piece));
        if (n == 0) break;
        CO_TRY_VOID(co_await exchange.write(std::span(piece).first(n)));
      }
      co_return co_await exchange.finish();
    };
    RunningServer server(executor, mirror);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    Request request;
    request.method = "POST";
    for (const BodyKind kind : {BodyKind::sized, BodyKind::chunked}) {
      std::string sent;
      for (int i = 0; i < 50; ++i) sent += std::string(static_cast<std::size_t>(i) * 100, static_cast<char>('a' + i % 26));
      auto stream = (co_await client.open(request, kind, sent.size())).value();
      for (std::size_t at = 0; at < sent.size(); at += 7'000)
        EXPECT_TRUE(co_await stream->write(as_bytes(std::string_view(sent).substr(at, 7'000))));
      EXPECT_TRUE(co_await stream->finish_request());
      const Response head = (co_await stream->head()).value();
      EXPECT_EQ(head.status, 200);
      EXPECT_EQ(stream->content_length().has_value(), kind == BodyKind::sized);
      EXPECT_EQ((co_await stream->read_all(1 << 20)).value(), sent);
    }
    EXPECT_EQ(server.server.connections(), 1U);
  });
}

TEST(Client, CancelEndsEveryPendingCall) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Handler quiet = [](Exchange& exchange) -> Task<> {
      if (exchange.target().raw == "/body") CO_TRY_VOID(co_await exchange.start(200, Headers()));
      co_await exchange.disconnected();
      co_return fail(ErrorKind::cancelled, "gone", "gone");
    };
    RunningServer server(executor, quiet);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    for (const char* path : {"/head", "/body"}) {
      Request request;
      request.target = path;
      auto stream = (co_await client.open(request)).value();
      stream->set_body_timeout(milliseconds(0));
      asio::co_spawn(
          executor,
          [](ClientStream& s) -> asio::awaitable<void> {
            co_await sleep_for(milliseconds(20));
            s.cancel();
          }(*stream),
          asio::detached);
      const auto head = co_await stream->head();
      if (head) {
        std::byte piece[10];
        EXPECT_EQ((co_await stream->read(piece)).error().code, "cancelled");
      } else {
        EXPECT_EQ(head.error().code, "cancelled");
      }
      EXPECT_EQ((co_await stream->read_all(10)).has_value(), false);
    }
    while (server.server.connections() > 0) co_await sleep_for(milliseconds(2));
  });
}

TEST(Client, IdleConnectionsAreClosedAfterTheirTime) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningServer server(executor, echo);
    ClientOptions options;
    options.idle_time = milliseconds(30);
    Client client(executor, tcp_connector("127.0.0.1", server.port), options);
    EXPECT_TRUE(co_await client.call(Request()));
    EXPECT_EQ(server.server.connections(), 1U);
    while (server.server.connections() > 0) co_await sleep_for(milliseconds(5));
  });
}

TEST(Client, MovesLargeBodiesNearMemorySpeed) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const std::size_t total = 256 << 20;
    const Handler handler = [&](Exchange& exchange) -> Task<> {
      std::vector<std::byte> piece(256 << 10);
      std::size_t got = 0;
      for (;;) {
        CO_TRY(const std::size_t n, co_await exchange.read(piece));
        if (n == 0) break;
        got += n;
      }
      EXPECT_EQ(got, exchange.has_body() ? total : 0U);
      const bool chunked = exchange.target().raw == "/chunked";
      CO_TRY_VOID(co_await exchange.start(200, Headers(), chunked ? std::nullopt : std::optional<std::uint64_t>(total)));
      for (std::size_t sent = 0; sent < total; sent += piece.size()) CO_TRY_VOID(co_await exchange.write(piece));
      co_return co_await exchange.finish();
    };
    RunningServer server(executor, handler);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    for (const char* path : {"/sized", "/chunked"}) {
      const auto begin = std::chrono::steady_clock::now();
      Request request;
      request.method = "PUT";
      request.target = path;
      auto stream = (co_await client.open(request, request.target == "/sized" ? BodyKind::sized : BodyKind::chunked, total)).value();
      std::vector<std::byte> piece(256 << 10);
      for (std::size_t sent = 0; sent < total; sent += piece.size()) EXPECT_TRUE(co_await stream->write(piece));
      EXPECT_TRUE(co_await stream->finish_request());
      const auto uploaded = std::chrono::steady_clock::now();
      EXPECT_TRUE(co_await stream->head());
      std::size_t got = 0;
      for (;;) {
        const std::size_t n = (co_await stream->read(piece)).value();
        if (n == 0) break;
        got += n;
      }
      EXPECT_EQ(got, total);
      const auto ms = [](auto from, auto to) { return static_cast<int>(std::chrono::duration_cast<milliseconds>(to - from).count()); };
      RecordProperty(std::string(path + 1) + "_up_ms", ms(begin, uploaded));
      RecordProperty(std::string(path + 1) + "_down_ms", ms(uploaded, std::chrono::steady_clock::now()));
    }
  });
}

}  // namespace
}  // namespace space::http
