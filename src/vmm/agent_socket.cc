#include "vmm/agent_socket.h"

#include <arpa/inet.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "wire/agent_protocol.h"

namespace space::vmm {
namespace {

constexpr int kBatch = 4;
constexpr std::chrono::seconds kConnectLimit{10};

Task<> connected(asio::posix::stream_descriptor& socket, std::uint16_t port) {
  sockaddr_in agent{};
  agent.sin_family = AF_INET;
  agent.sin_port = htons(port);
  ::inet_pton(AF_INET, wire::kGuestAddress, &agent.sin_addr);
  int error = ::connect(socket.native_handle(), reinterpret_cast<sockaddr*>(&agent), sizeof agent) == 0 ? 0 : errno;
  // A socket that is not connected yet hangs up, and the loop may tell of that late: no error is not yet a connection.
  while (error == EINPROGRESS || error == ENOTCONN) {
    auto [waited] = co_await socket.async_wait(asio::posix::stream_descriptor::wait_write, kAsTuple);
    if (waited) co_return fail(ErrorKind::cancelled, "cancelled", "the connection to the agent was given up");
    socklen_t length = sizeof error;
    if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    sockaddr_in peer{};
    length = sizeof peer;
    if (error == 0 && ::getpeername(socket.native_handle(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) error = errno;
  }
  if (error == ECONNREFUSED && port != wire::kAgentPort)
    co_return fail(ErrorKind::unavailable, "port_closed", fmt::format("nothing in the sandbox listens on port {}", port),
                   "start the server there, then try again");
  if (error != 0) {
    Error failed = fail_errno(error, "connect to the agent").value();
    co_return fail(ErrorKind::unavailable, "agent_unreachable", failed.message, "try again; the guest may still be starting");
  }
  co_return Result<>{};
}

}  // namespace

http::Connector AgentSockets::connector(std::uint16_t port) {
  return [self = shared_from_this(), port] { return connect(self, port); };
}

void AgentSockets::stock(std::vector<Fd> sockets) {
  for (Fd& socket : sockets) stock_.push_back(std::move(socket));
}

Task<Fd> AgentSockets::take() {
  if (stock_.empty()) {
    auto warden = warden_;
    auto vm = vm_;
    auto make = [warden, vm] { return warden->guest_sockets(vm, kBatch); };
    CO_TRY(auto made, co_await pool_.run(make));
    stock(std::move(made));
    if (stock_.empty()) co_return fail(ErrorKind::internal, "no_guest_socket", "the warden gave no socket");
  }
  Fd socket = std::move(stock_.back());
  stock_.pop_back();
  co_return socket;
}

Task<Fd> AgentSockets::connect(std::shared_ptr<AgentSockets> self, std::uint16_t port) {
  using namespace asio::experimental::awaitable_operators;
  CO_TRY(Fd fd, co_await self->take());
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  asio::posix::stream_descriptor socket(co_await asio::this_coro::executor);
  boost::system::error_code error;
  socket.assign(fd.get(), error);
  if (error) co_return fail_errno(error.value(), "watch a socket");
  (void)fd.release();
  auto outcome = co_await (connected(socket, port) || sleep_for(kConnectLimit));
  if (outcome.index() == 1)
    co_return fail(ErrorKind::unavailable, "agent_unreachable", "the agent did not accept a connection in time",
                   "try again; the guest may still be starting");
  CO_TRY_VOID(std::move(std::get<0>(outcome)));
  co_return Fd(socket.release());
}

}  // namespace space::vmm
