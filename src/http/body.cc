#include "http/body.h"

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <cstring>

namespace space::http {
namespace {

using Fault = BodyReader::Piece::Fault;
constexpr std::size_t kFramingRoom = 16 << 10;

std::size_t take(InBuffer& in, std::span<std::byte> into, std::uint64_t most) {
  const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>({in.size(), into.size(), most}));
  if (n > 0) std::memcpy(into.data(), in.view().data(), n);
  in.consume(n);
  return n;
}

BodyReader::Piece failed(const boost::system::error_code& error) {
  return {0, error == asio::error::eof ? Fault::cut_off : Fault::failed, error};
}

}  // namespace

asio::awaitable<BodyReader::Piece> BodyReader::read(Stream& stream, InBuffer& in, std::span<std::byte> into) {
  if (framing_ == Framing::none || into.empty()) co_return Piece{};
  if (framing_ == Framing::chunked) co_return co_await read_chunked(stream, in, into);

  const std::uint64_t most = framing_ == Framing::sized ? left_ : into.size();
  std::size_t got = take(in, into, most);
  if (got == 0) {
    const std::array room{asio::mutable_buffer(into.data(), static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), most)))};
    const Transfer transfer = co_await stream.read_some(room);
    if (transfer.error) {
      if (framing_ != Framing::until_close || transfer.error != asio::error::eof) co_return failed(transfer.error);
      framing_ = Framing::none;
      co_return Piece{};
    }
    got = transfer.bytes;
  }
  if (framing_ == Framing::sized && (left_ -= got) == 0) framing_ = Framing::none;
  co_return Piece{got, Fault::none, {}};
}

asio::awaitable<BodyReader::Piece> BodyReader::read_chunked(Stream& stream, InBuffer& in, std::span<std::byte> into) {
  std::size_t got = 0;
  for (;;) {
    // What is in the buffer: framing and data in turn, as much as `into` takes.
    while (!in.empty() && got < into.size() && !chunks_.done() && !chunks_.bad()) {
      in.consume(chunks_.consume(in.view()));
      if (chunks_.data_left() == 0) continue;
      const std::size_t n = take(in, into.subspan(got), chunks_.data_left());
      chunks_.took(n);
      got += n;
    }
    // The line end and the last chunk behind full data cost no further read when they are here already.
    if (!in.empty() && chunks_.data_left() == 0) in.consume(chunks_.consume(in.view()));
    if (chunks_.bad()) co_return Piece{0, Fault::malformed, {}};
    if (chunks_.done()) framing_ = Framing::none;
    if (got > 0 || chunks_.done()) co_return Piece{got, Fault::none, {}};

    // The buffer is empty. Data goes straight to the caller; what comes behind it, by the same call, to the buffer.
    const std::size_t direct = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), chunks_.data_left()));
    const std::array room{asio::mutable_buffer(into.data(), direct), in.prepare(kFramingRoom)};
    const std::span<const asio::mutable_buffer> parts(room);
    const Transfer transfer = co_await stream.read_some(direct > 0 ? parts : parts.subspan(1));
    if (transfer.error) co_return failed(transfer.error);
    got = std::min(direct, transfer.bytes);
    if (got > 0) chunks_.took(got);
    in.commit(transfer.bytes - got);
  }
}

}  // namespace space::http
