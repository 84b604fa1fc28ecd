// Bytes both ways on a connection that was an HTTP exchange until it switched protocols (RFC 9110, section 7.8).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/async.h"
#include "base/fd.h"

namespace space::http {

// Belongs to the loop of its exchange, which must outlive it. One read and one write at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual Task<std::size_t> read(std::span<std::byte> into) = 0;  // 0: the other end has closed its direction; waits without a limit
  virtual Task<> write(std::span<const std::byte> bytes) = 0;     // all of them; a reader that takes nothing ends it after body_timeout
  virtual asio::awaitable<void> close_write() = 0;                // no more will be written; reading goes on
  virtual void cut() = 0;                                         // both directions, at once; what waits ends with `cancelled`
};

// A connected stream socket as one.
Result<std::unique_ptr<ByteStream>> socket_stream(const asio::any_io_executor& executor, Fd socket);

// Carries both directions until both have closed, or one failed.
asio::awaitable<void> splice(ByteStream& a, ByteStream& b);

}  // namespace space::http
