#include "http/server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unordered_map>

#include "base/log.h"
#include "http/connection.h"
#include "http/tls.h"

namespace space::http {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{50};  // without descriptors or memory: connections wait in the backlog
constexpr int kAcceptBurst = 64;

// A client whose machine vanished without a FIN is noticed within about a minute (tcp(7)). The limit on unacknowledged bytes
// also ends a connection whose reader takes nothing, so it is not below our own limit for that.
void notice_vanished_peers(int fd, std::chrono::milliseconds body_timeout) {
  const int on = 1, idle_s = 30, interval_s = 10, probes = 3;
  const unsigned unacknowledged_ms = static_cast<unsigned>(std::clamp<std::int64_t>(body_timeout.count(), 60'000, 3'600'000));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

Peer peer_of(const Fd& socket, const sockaddr_storage& address, std::chrono::milliseconds body_timeout) {
  Peer peer;
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    peer.address = ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    peer.port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
      peer.address = ::inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
    else
      peer.address = ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    peer.port = ntohs(v6.sin6_port);
  } else if (auto credentials = peer_credentials(socket)) {
    peer.credentials = *credentials;
  }
  if (!peer.credentials && !peer.address.empty()) notice_vanished_peers(socket.get(), body_timeout);
  return peer;
}

struct Listener {
  explicit Listener(const asio::any_io_executor& executor) : socket(executor) {}
  asio::posix::stream_descriptor socket;
  std::shared_ptr<TlsContext> tls;
};

}  // namespace

// Each connection is a coroutine that owns a share of this state and of its Connection. This state lists the connections, so
// that they can be cut; the circle opens when the coroutine ends, or when the loop is destroyed with the coroutine in it.
struct Server::State : std::enable_shared_from_this<State> {
  State(asio::any_io_executor e, Handler handler, Options options)
      : executor(std::move(e)), core(std::make_shared<ServerCore>()), one_ended(executor) {
    core->handler = std::move(handler);
    core->options = std::move(options);
  }

  void stop_accepting() {
    core->stopping = true;
    for (const auto& listener : listeners) {
      boost::system::error_code ignored;
      listener->socket.close(ignored);
    }
    listeners.clear();
    each([](Connection& c) { c.finish_up(); });
  }
  void cut_all() {
    each([](Connection& c) { c.cut(); });
  }
  void each(void (*what)(Connection&)) {
    const auto now = connections;  // what is called may end connections
    for (const auto& [key, connection] : now) what(*connection);
  }

  asio::awaitable<void> accept_from(std::shared_ptr<Listener> listener);
  void add(Fd socket, const sockaddr_storage& address, const std::shared_ptr<TlsContext>& tls);
  void refuse_full(Fd socket);
  void ended(Connection* connection);

  asio::any_io_executor executor;
  std::shared_ptr<ServerCore> core;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  Signal one_ended;
  bool full_said = false;
};

asio::awaitable<void> Server::State::accept_from(std::shared_ptr<Listener> listener) {
  for (;;) {
    const auto [error] = co_await listener->socket.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
    if (error || core->stopping) co_return;
    for (int i = 0; i < kAcceptBurst; ++i) {
      sockaddr_storage address{};
      socklen_t length = sizeof address;
      Fd socket(::accept4(listener->socket.native_handle(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        add(std::move(socket), address, listener->tls);
        continue;
      }
      const int reason = errno;
      if (reason == EINTR || reason == ECONNABORTED) continue;
      if (reason == EAGAIN) break;
      log::warn("http.accept_failed", {{"error", fail_errno(reason, "accept").value()}});
      co_await sleep_for(kAcceptPause);
      break;
    }
  }
}

void Server::State::add(Fd socket, const sockaddr_storage& address, const std::shared_ptr<TlsContext>& tls) {
  if (connections.size() >= core->options.max_connections) {
    // Whoever asks for nothing gives way: connections without a request keep nobody out.
    if (core->waiting.empty()) return refuse_full(std::move(socket));
    core->waiting.front()->cut();
  }
  full_said = false;
  Peer peer = peer_of(socket, address, core->options.body_timeout);
  auto adopted = adopt_socket(executor, std::move(socket));
  if (!adopted) return log::warn("http.accept_failed", {{"error", adopted.error()}});
  auto stream = tls ? tls->wrap(std::move(*adopted)) : make_plain_stream(std::move(*adopted));
  auto connection = std::make_shared<Connection>(executor, core, std::move(stream), std::move(peer));
  connections.emplace(connection.get(), connection);
  asio::co_spawn(
      executor, [](std::shared_ptr<Connection> c) -> asio::awaitable<void> { co_await c->run(); }(connection),
      asio::bind_cancellation_slot(connection->cancel_signal.slot(),
                                   [self = shared_from_this(), key = connection.get()](std::exception_ptr) { self->ended(key); }));
}

void Server::State::ended(Connection* connection) {
  const auto found = connections.find(connection);
  if (found == connections.end()) return;
  // The cancellation signal must outlive the coroutine that is just ending.
  asio::post(executor, [self = shared_from_this(), last = std::move(found->second)]() mutable {
    last.reset();
    self->one_ended.notify_all();
  });
  connections.erase(found);
}

void Server::State::refuse_full(Fd socket) {
  if (!std::exchange(full_said, true)) log::warn("http.full", {{"connections", connections.size()}});
  const Response answer =
      problem({ErrorKind::unavailable, "too_many_connections", "this server has as many connections as it allows", "try again later"});
  const std::string text = fmt::format(
      "HTTP/1.1 503 {}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{}",
      reason_phrase(503), answer.body.size(), answer.body);
  // What does not fit at once is not worth waiting for.
  (void)::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Server::Server(asio::any_io_executor executor, Handler handler, Options options)
    : state_(std::make_shared<State>(std::move(executor), std::move(handler), std::move(options))) {}

Server::~Server() {
  state_->stop_accepting();
  state_->cut_all();
}

Result<> Server::serve(Fd listener, std::shared_ptr<TlsContext> tls) {
  auto entry = std::make_shared<Listener>(state_->executor);
  entry->tls = std::move(tls);
  boost::system::error_code error;
  entry->socket.assign(listener.get(), error);
  if (error) return fail_errno(error.value(), "watch a listening socket");
  listener.release();
  entry->socket.native_non_blocking(true, error);
  if (error) return fail_errno(error.value(), "set a socket to non-blocking");
  state_->listeners.push_back(entry);
  spawn(state_->executor, state_->accept_from(entry));
  return {};
}

asio::awaitable<void> Server::stop(std::chrono::milliseconds grace) {
  const auto state = state_;
  const auto end = asio::steady_timer::clock_type::now() + grace;
  state->stop_accepting();
  while (!state->connections.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - asio::steady_timer::clock_type::now());
    if (left.count() <= 0) break;
    co_await state->one_ended.wait_for(left);
  }
  state->cut_all();
  // Handlers end now, at the latest when the blocking work that they wait for is done; what they refer to must live until then.
  while (!state->connections.empty()) co_await state->one_ended.wait_for(std::chrono::seconds(1));
}

std::size_t Server::connections() const { return state_->connections.size(); }

Result<Fd> listen_tcp(const std::string& address, std::uint16_t port) {
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (auto& v4 = reinterpret_cast<sockaddr_in&>(storage); ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    length = sizeof v4;
  } else if (auto& v6 = reinterpret_cast<sockaddr_in6&>(storage); ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    length = sizeof v6;
  } else {
    return fail(ErrorKind::invalid_argument, "bad_listen_address", fmt::format("{} is not an IP address", address),
                "give an address such as 127.0.0.1 or ::1");
  }
  Fd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (storage.ss_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0)
    return fail_errno(errno, fmt::format("bind {} port {}", address, port));
  if (::listen(fd.get(), 1024) != 0) return fail_errno(errno, "listen");
  return fd;
}

Result<std::uint16_t> local_port(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return fail_errno(errno, "getsockname");
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return fail(ErrorKind::invalid_argument, "not_a_tcp_socket", "only a TCP socket has a port");
}

}  // namespace space::http
