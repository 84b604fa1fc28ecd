// How a client gets its connections.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "http/client.h"

namespace space::http {
namespace {

constexpr std::chrono::milliseconds kBacklogPause{2};

Task<Fd> connect_to_unix(std::string path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    co_return fail(ErrorKind::invalid_argument, "socket_path_too_long",
                   fmt::format("{} has more than {} bytes", path, sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) co_return fail_errno(errno, "socket");
  // EAGAIN: the listener's backlog is full (unix(7)); the kernel offers no way to wait for that.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int reason = errno;
    if (reason != EAGAIN && reason != EINTR) {
      Error error = fail_errno(reason, fmt::format("connect to {}", path)).value();
      error.kind = ErrorKind::unavailable;
      co_return fail(std::move(error));
    }
    co_await sleep_for(kBacklogPause);
  }
  co_return std::move(fd);
}

Task<Fd> connect_to_tcp(std::string host, std::uint16_t port) {
  const auto unreachable = [&](const boost::system::error_code& error) {
    return fail(ErrorKind::unavailable, "connect_failed", fmt::format("cannot connect to {} port {}: {}", host, port, error.message()),
                "check that the address is right and that the server runs");
  };
  const auto executor = co_await asio::this_coro::executor;
  std::vector<asio::ip::tcp::endpoint> endpoints;
  boost::system::error_code error;
  if (const auto literal = asio::ip::make_address(host, error); !error) {
    endpoints.emplace_back(literal, port);
  } else {
    // Asio resolves on a thread of its own.
    asio::ip::tcp::resolver resolver(executor);
    const std::string service = std::to_string(port);
    const auto [failed, results] = co_await resolver.async_resolve(host, service, asio::ip::resolver_base::numeric_service, kAsTuple);
    if (failed) co_return unreachable(failed);
    for (const auto& result : results) endpoints.push_back(result.endpoint());
  }
  asio::ip::tcp::socket socket(executor);
  const auto [failed, endpoint] = co_await asio::async_connect(socket, endpoints, kAsTuple);
  if (failed) co_return unreachable(failed);
  Fd fd(socket.release(error));
  if (error) co_return unreachable(error);
  co_return std::move(fd);
}

}  // namespace

Connector unix_connector(std::string path) {
  return [path = std::move(path)]() { return connect_to_unix(path); };
}

Connector tcp_connector(std::string host, std::uint16_t port) {
  return [host = std::move(host), port]() { return connect_to_tcp(host, port); };
}

}  // namespace space::http
