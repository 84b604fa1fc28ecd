// Reads a message's body off a stream, whatever its framing. For this folder and src/egress.
#pragma once

#include <cstdint>
#include <span>

#include "http/chunk.h"
#include "http/head.h"
#include "http/in_buffer.h"
#include "http/stream.h"

namespace space::http {

class BodyReader {
 public:
  struct Piece {
    std::size_t bytes = 0;  // 0 without an error: the end
    enum class Fault { none, cut_off, malformed, failed } fault = Fault::none;
    boost::system::error_code error;  // with cut_off and failed
  };

  BodyReader() = default;
  explicit BodyReader(const Head& head) : framing_(head.framing), left_(head.content_length.value_or(0)) {}
  bool done() const { return framing_ == Framing::none; }
  Framing framing() const { return framing_; }
  std::uint64_t left() const { return left_; }  // sized bodies

  asio::awaitable<Piece> read(Stream& stream, InBuffer& in, std::span<std::byte> into);

 private:
  asio::awaitable<Piece> read_chunked(Stream& stream, InBuffer& in, std::span<std::byte> into);
  Framing framing_ = Framing::none;  // none: nothing is left
  std::uint64_t left_ = 0;
  ChunkDecoder chunks_;
};

}  // namespace space::http
