#include "http/chunk.h"

namespace space::http {
namespace {

constexpr std::size_t kMaxSkipped = 16 << 10;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_text(char c) { return static_cast<unsigned char>(c) >= 0x20 ? c != 0x7f : c == '\t'; }

}  // namespace

ChunkDecoder::State ChunkDecoder::next(char c) {
  switch (state_) {
    case State::size_first:
      left_ = 0;
      digits_ = 0;
      [[fallthrough]];
    case State::size:
      if (const int digit = hex_value(c); digit >= 0) {
        if (++digits_ > 15) return State::bad;  // 60 bits: cannot overflow, more than anybody has
        left_ = left_ * 16 + static_cast<unsigned>(digit);
        return State::size;
      }
      if (digits_ == 0) return State::bad;
      if (c == ';') return State::extension;
      return c == '\r' ? State::size_lf : State::bad;
    case State::extension:
      if (c == '\r') return State::size_lf;
      return is_text(c) && ++skipped_ <= kMaxSkipped ? State::extension : State::bad;
    case State::size_lf:
      if (c != '\n') return State::bad;
      return left_ > 0 ? State::data : State::trailer_first;
    case State::data_cr:
      return c == '\r' ? State::data_lf : State::bad;
    case State::data_lf:
      return c == '\n' ? State::size_first : State::bad;
    case State::trailer_first:
      if (c == '\r') return State::last_lf;
      if (c == ' ' || c == '\t') return State::bad;
      [[fallthrough]];
    case State::trailer:
      if (c == '\r') return State::trailer_lf;
      return is_text(c) && ++skipped_ <= kMaxSkipped ? State::trailer : State::bad;
    case State::trailer_lf:
      return c == '\n' ? State::trailer_first : State::bad;
    case State::last_lf:
      return c == '\n' ? State::done : State::bad;
    case State::data:
    case State::done:
    case State::bad:
      break;
  }
  return state_;
}

std::size_t ChunkDecoder::consume(std::string_view in) {
  std::size_t taken = 0;
  while (taken < in.size() && state_ != State::data && state_ != State::done && state_ != State::bad) state_ = next(in[taken++]);
  return taken;
}

void ChunkDecoder::took(std::uint64_t bytes) {
  left_ -= bytes;
  if (left_ == 0) state_ = State::data_cr;
}

}  // namespace space::http
