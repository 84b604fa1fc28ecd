// The chunked transfer coding (RFC 9112, section 7.1), read strictly and bounded. For this folder and src/egress.
#pragma once

#include <cstdint>
#include <string_view>

namespace space::http {

// Reads what stands between the data: sizes, extensions (skipped), line ends, trailers (skipped). Data itself is the caller's,
// so that it goes straight from the socket to where it is wanted.
class ChunkDecoder {
 public:
  // Takes framing bytes from the front of `in`, stops before data; returns how many were taken.
  std::size_t consume(std::string_view in);
  std::uint64_t data_left() const { return state_ == State::data ? left_ : 0; }  // so many data bytes come next
  void took(std::uint64_t bytes);                                                // of them, by the caller
  bool done() const { return state_ == State::done; }
  bool bad() const { return state_ == State::bad; }

 private:
  enum class State { size_first, size, extension, size_lf, data, data_cr, data_lf, trailer_first, trailer, trailer_lf, last_lf, done, bad };
  State next(char c);
  State state_ = State::size_first;
  std::uint64_t left_ = 0;
  unsigned digits_ = 0;
  std::size_t skipped_ = 0;  // bytes of extensions and trailers so far: bounded over the whole body
};

}  // namespace space::http
