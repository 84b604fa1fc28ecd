#include "http/stream.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace space::http {
namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}

  Task<> handshake() override { co_return Result<>(); }

  asio::awaitable<Transfer> read_some(std::span<const asio::mutable_buffer> into) override { return read_socket(into); }

  asio::awaitable<Transfer> write_all(std::span<const asio::const_buffer> parts) override {
    // asio::async_write would cut this into pieces of 64 KiB; the kernel takes as much as the socket's buffer holds.
    std::array<asio::const_buffer, kMaxParts> left;
    const std::size_t count = std::min(parts.size(), left.size());
    std::copy_n(parts.begin(), count, left.begin());
    std::size_t first = 0;
    Transfer done;
    while (first < count) {
      const std::span<const asio::const_buffer> rest(left.data() + first, count - first);
      const auto [error, sent] = co_await socket_.async_write_some(rest, kAsTuple);
      done.bytes += sent;
      done.error = error;
      if (error) break;
      std::size_t skip = sent;
      while (first < count && skip >= left[first].size()) skip -= left[first++].size();
      if (first < count) left[first] += skip;
    }
    co_return done;
  }

  asio::awaitable<void> close_write() override {
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    co_return;
  }

  Socket& socket() override { return socket_; }
  bool is_plain() const override { return true; }

 private:
  Socket socket_;
};

}  // namespace

asio::awaitable<Transfer> Stream::read_socket(std::span<const asio::mutable_buffer> into) {
  // Asio waits for another edge after the end was read once, and there is none.
  if (ended_) co_return Transfer{ended_, 0};
  const auto [error, bytes] = co_await socket().async_read_some(into, kAsTuple);
  if (error && error != asio::error::operation_aborted) ended_ = error;
  co_return Transfer{error, bytes};
}

void Stream::cancel() {
  boost::system::error_code ignored;
  socket().cancel(ignored);
}

void Stream::close() {
  boost::system::error_code ignored;
  socket().close(ignored);
}

void Stream::reset() {
  boost::system::error_code ignored;
  socket().set_option(asio::socket_base::linger(true, 0), ignored);
  socket().close(ignored);
}

Result<Socket> adopt_socket(const asio::any_io_executor& executor, Fd fd) {
  int family = 0;
  socklen_t length = sizeof family;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) return fail_errno(errno, "SO_DOMAIN");
  const bool tcp = family == AF_INET || family == AF_INET6;
  if (tcp) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Socket socket(executor);
  boost::system::error_code error;
  socket.assign(asio::generic::stream_protocol(family, tcp ? IPPROTO_TCP : 0), fd.get(), error);
  if (error) return fail_errno(error.value(), "watch a socket");
  fd.release();
  socket.native_non_blocking(true, error);
  if (error) return fail_errno(error.value(), "set a socket to non-blocking");
  return socket;
}

std::unique_ptr<Stream> make_plain_stream(Socket socket) { return std::make_unique<PlainStream>(std::move(socket)); }

}  // namespace space::http
