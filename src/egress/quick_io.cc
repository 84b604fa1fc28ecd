#include "egress/quick_io.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <cerrno>
#include <string>
#include <sys/socket.h>

#include "egress/tls_stream.h"

namespace space::egress {
namespace {

boost::system::error_code system_error(int number) { return {number, boost::system::system_category()}; }

// What is not a plain socket here is a TlsStream: nothing else is made in this folder.
TlsStream& tls(http::Stream& stream) { return dynamic_cast<TlsStream&>(stream); }

}  // namespace

http::Transfer read_now(http::Stream& stream, std::span<char> into) {
  if (!stream.is_plain()) return tls(stream).read_now({into.data(), into.size()});
  ssize_t n;
  do n = ::recv(stream.socket().native_handle(), into.data(), into.size(), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n > 0) return {{}, static_cast<std::size_t>(n)};
  if (n == 0) return {asio::error::eof, 0};
  if (errno == EAGAIN) return {asio::error::would_block, 0};
  return {system_error(errno), 0};
}

asio::awaitable<boost::system::error_code> wait_for_data(http::Stream& stream) {
  if (!stream.is_plain()) co_return co_await tls(stream).wait();
  const auto [error] = co_await stream.socket().async_wait(http::Socket::wait_read, kAsTuple);
  co_return error;
}

asio::awaitable<boost::system::error_code> write_from_shared(http::Stream& stream, std::string_view bytes) {
  if (!stream.is_plain()) {
    // It has encrypted them before it waits.
    const std::array part{asio::const_buffer(bytes.data(), bytes.size())};
    const http::Transfer sent = co_await stream.write_all(part);
    co_return sent.error;
  }
  while (!bytes.empty()) {
    const ssize_t n = ::send(stream.socket().native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) co_return system_error(errno);
    const std::string rest(bytes);
    const std::array part{asio::const_buffer(rest.data(), rest.size())};
    const http::Transfer sent = co_await stream.write_all(part);
    co_return sent.error;
  }
  co_return boost::system::error_code();
}

}  // namespace space::egress
