// Servers that listen on the guest's own loopback address alone: the host's end of the wire cannot dial that, the agent can.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>

#include "agent/routes.h"
#include "http/byte_stream.h"

namespace space::agent {
namespace {

using asio::ip::tcp;
constexpr auto kConnectLimit = std::chrono::seconds(5);

Task<Fd> dial(tcp::endpoint to) {
  using namespace asio::experimental::awaitable_operators;
  tcp::socket socket(co_await asio::this_coro::executor);
  auto first = co_await (socket.async_connect(to, asio::as_tuple(asio::use_awaitable)) || sleep_for(kConnectLimit));
  if (first.index() == 1 || std::get<0>(std::get<0>(first)))
    co_return fail(ErrorKind::unavailable, "port_closed", fmt::format("nothing in the sandbox listens on port {}", to.port()),
                   "start the server there, then try again");
  boost::system::error_code error;
  Fd fd(socket.release(error));
  if (error) co_return fail_errno(error.value(), "release a socket");
  co_return fd;
}

// `GET /v1/connect?port=N` with `Upgrade: tcp`: bytes of a connection to 127.0.0.1:N, or [::1]:N.
Task<> connect(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::uint64_t port, query_number(exchange.target(), "port", 65535, 0));
  if (port == 0 || http::wanted_upgrade(exchange) != "tcp")
    co_return fail(ErrorKind::invalid_argument, "invalid_query", "this needs port=1..65535 and an upgrade to tcp");
  const tcp::endpoint v4(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)),
      v6(asio::ip::address_v6::loopback(), static_cast<std::uint16_t>(port));
  auto dialled = co_await dial(v4);
  if (!dialled) dialled = co_await dial(v6);
  if (!dialled) co_return fail(std::move(dialled).error());
  CO_TRY(const auto far, http::socket_stream(agent.executor, std::move(*dialled)));
  http::Headers none;
  CO_TRY(const auto near, co_await exchange.upgrade("tcp", std::move(none)));
  co_await http::splice(*near, *far);
  co_return Result<>();
}

}  // namespace

void add_connect_routes(http::Router& router, Agent& agent) {
  router.add("GET", "/v1/connect", [&agent](http::Exchange& x) { return connect(agent, x); });
}

}  // namespace space::agent
