#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <memory>

#include "http/byte_stream.h"
#include "http/stream.h"

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

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Task<std::size_t> read(std::span<std::byte> into) override {
    const std::array room{asio::mutable_buffer(into.data(), into.size())};
    const Transfer transfer = co_await stream_->read_some(room);
    if (transfer.error == asio::error::eof) co_return 0U;
    if (transfer.error) co_return lost();
    co_return transfer.bytes;
  }
  Task<> write(std::span<const std::byte> bytes) override {
    const std::array parts{asio::const_buffer(bytes.data(), bytes.size())};
    const Transfer transfer = co_await stream_->write_all(parts);
    if (transfer.error) co_return lost();
    co_return Result<>();
  }
  asio::awaitable<void> close_write() override { return stream_->close_write(); }
  void cut() override { stream_->reset(); }

 private:
  static tl::unexpected<Error> lost() { return fail(ErrorKind::unavailable, "connection_lost", "the connection ended"); }
  std::unique_ptr<Stream> stream_;
};

}  // namespace

Result<std::unique_ptr<ByteStream>> socket_stream(const asio::any_io_executor& executor, Fd socket) {
  TRY(Socket adopted, adopt_socket(executor, std::move(socket)));
  return std::make_unique<SocketStream>(make_plain_stream(std::move(adopted)));
}

asio::awaitable<void> splice(ByteStream& a, ByteStream& b) {
  using namespace asio::experimental::awaitable_operators;
  co_await (carry(a, b) && carry(b, a));
}

}  // namespace space::http
