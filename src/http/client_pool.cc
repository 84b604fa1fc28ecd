#include "http/client_pool.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <sys/socket.h>

#include "http/tls.h"

namespace space::http {
namespace {

// The server's FIN or RST has arrived, or bytes that nobody asked for (over TLS these may be session tickets).
bool is_stale(Stream& stream) {
  char byte;
  const ssize_t n = ::recv(stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0) return errno != EAGAIN && errno != EINTR;
  return n == 0 || stream.is_plain();
}

template <class T>
Task<T> within(std::chrono::milliseconds time, Task<T> work) {
  using namespace asio::experimental::awaitable_operators;
  auto first = co_await (std::move(work) || sleep_for(time));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return fail(ErrorKind::deadline_exceeded, "connect_timeout", fmt::format("no connection within {} ms", time.count()),
                 "check that the server runs, then try again");
}

}  // namespace

ClientPool::ClientPool(asio::any_io_executor e, Connector c, ClientOptions o)
    : executor(std::move(e)), connector(std::move(c)), options(std::move(o)), timer_(executor) {}

Task<std::unique_ptr<ClientConnection>> ClientPool::acquire(bool fresh) {
  while (!fresh && !idle_.empty()) {
    auto connection = std::move(idle_.back().connection);  // the newest is the least likely to be stale
    idle_.pop_back();
    if (is_stale(*connection->stream)) continue;
    connection->reused = true;
    co_return connection;
  }
  co_return co_await connect();
}

Task<std::unique_ptr<ClientConnection>> ClientPool::connect() {
  auto connection = std::make_unique<ClientConnection>();
  connection->generation = generation_;
  CO_TRY(Fd fd, co_await within(options.connect_timeout, connector()));
  CO_TRY(Socket socket, adopt_socket(executor, std::move(fd)));
  connection->stream = options.tls ? options.tls->wrap(std::move(socket), options.host) : make_plain_stream(std::move(socket));
  CO_TRY_VOID(co_await within(options.connect_timeout, connection->stream->handshake()));
  co_return connection;
}

void ClientPool::give_back(std::unique_ptr<ClientConnection> connection) {
  if (closed || connection->generation != generation_ || !connection->in.empty() || options.max_idle == 0) return;
  connection->in.shrink();
  if (idle_.size() >= options.max_idle) idle_.pop_front();
  idle_.push_back({std::move(connection), std::chrono::steady_clock::now()});
  if (!watching_) watch_idle();
}

void ClientPool::close_idle() {
  ++generation_;
  idle_.clear();
  timer_.cancel();
}

void ClientPool::watch_idle() {
  watching_ = true;
  timer_.expires_at(idle_.front().since + options.idle_time);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code&) {
    const auto self = weak.lock();
    if (!self) return;
    self->watching_ = false;
    const auto now = std::chrono::steady_clock::now();
    while (!self->idle_.empty() && self->idle_.front().since + self->options.idle_time <= now) self->idle_.pop_front();
    if (!self->idle_.empty()) self->watch_idle();
  });
}

}  // namespace space::http
