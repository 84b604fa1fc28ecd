#include <boost/asio/experimental/awaitable_operators.hpp>
#include <memory>

#include "http/byte_stream.h"

namespace space::http {
namespace {

constexpr std::size_t kPiece = 64 << 10;

// Ends when `from` has closed its direction; on an error both ends are cut, so that the other direction ends too.
asio::awaitable<bool> carry(ByteStream& from, ByteStream& to) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  const std::span<std::byte> room(buffer.get(), kPiece);
  for (;;) {
    const auto got = co_await from.read(room);
    if (got && *got == 0) break;
    Result<> sent;
    if (got) sent = co_await to.write(room.first(*got));
    if (got && sent) continue;
    from.cut();
    to.cut();
    co_return false;
  }
  co_await to.close_write();
  co_return true;
}

}  // namespace

asio::awaitable<void> splice(ByteStream& a, ByteStream& b) {
  using namespace asio::experimental::awaitable_operators;
  co_await (carry(a, b) && carry(b, a));
}

}  // namespace space::http
