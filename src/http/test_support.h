// What the tests of this folder share: a loop that runs one coroutine, a server on a free port, a client that speaks raw bytes.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <string>

#include "base/async.h"
#include "base/encoding.h"
#include "base/file.h"
#include "http/client.h"
#include "http/router.h"
#include "http/server.h"

namespace space::http::test {

using std::chrono::milliseconds;

#ifdef SPACE_SANITIZED
inline constexpr milliseconds kTestLimit{120'000};  // the sanitizers make it several times slower
#else
inline constexpr milliseconds kTestLimit{20'000};
#endif

// Runs `body` on a fresh loop until it ends; fails the test when that takes longer than `limit`.
inline void run(const std::function<asio::awaitable<void>(asio::any_io_executor)>& body, milliseconds limit = kTestLimit) {
  asio::io_context loop(1);
  bool ended = false;
  asio::co_spawn(loop, body(loop.get_executor()), [&](std::exception_ptr error) {
    ended = true;
    loop.stop();
    if (error) std::rethrow_exception(error);
  });
  loop.run_for(limit);
  EXPECT_TRUE(ended) << "the test did not end in time";
}

struct RunningServer {
  RunningServer(const asio::any_io_executor& executor, Handler handler, Options options = {}, std::shared_ptr<TlsContext> tls = nullptr)
      : server(executor, std::move(handler), std::move(options)) {
    Fd listener = listen_tcp("127.0.0.1", 0).value();
    port = local_port(listener).value();
    EXPECT_TRUE(server.serve(std::move(listener), std::move(tls)));
  }
  Server server;
  std::uint16_t port = 0;
};

// A client that sends exactly the bytes it is told to.
class RawClient {
 public:
  RawClient(const asio::any_io_executor& executor, std::uint16_t port) : socket_(executor) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), port});
  }
  asio::awaitable<bool> send(std::string bytes) {
    const auto [error, n] = co_await asio::async_write(socket_, asio::buffer(bytes), kAsTuple);
    co_return !error;
  }
  // Everything up to the end of the connection; `reset` tells whether it was cut.
  asio::awaitable<std::string> read_to_end() {
    for (;;) {
      char piece[4096];
      const auto [error, n] = co_await socket_.async_read_some(asio::buffer(piece), kAsTuple);
      seen_.append(piece, n);
      if (!error) continue;
      reset = error != asio::error::eof;
      co_return std::exchange(seen_, {});
    }
  }
  // Up to and with `end`; what follows stays for the next call.
  asio::awaitable<std::string> read_until(std::string end) {
    for (;;) {
      if (const auto at = seen_.find(end); at != seen_.npos) {
        std::string text = seen_.substr(0, at + end.size());
        seen_.erase(0, at + end.size());
        co_return text;
      }
      char piece[4096];
      const auto [error, n] = co_await socket_.async_read_some(asio::buffer(piece), kAsTuple);
      if (error) co_return "ended: " + std::exchange(seen_, {});
      seen_.append(piece, n);
    }
  }
  void half_close() { socket_.shutdown(asio::ip::tcp::socket::shutdown_send); }
  void close() { socket_.close(); }
  void cut() {
    socket_.set_option(asio::socket_base::linger(true, 0));
    socket_.close();
  }
  bool reset = false;

 private:
  asio::ip::tcp::socket socket_;
  std::string seen_;
};

// One connection, one send, everything that came back.
inline asio::awaitable<std::string> raw_exchange(asio::any_io_executor executor, std::uint16_t port, std::string bytes) {
  RawClient client(executor, port);
  co_await client.send(std::move(bytes));
  co_return co_await client.read_to_end();
}

inline Task<> echo(Exchange& exchange) {
  CO_TRY(std::string body, co_await exchange.read_body(1 << 20));
  Response response;
  response.headers.add("Content-Type", "text/plain");
  response.body = exchange.method() + " " + exchange.target().raw + " " + body;
  co_return co_await exchange.reply(std::move(response));
}

}  // namespace space::http::test
