#include "egress/inflate.h"

#include <cstring>
#include <zlib.h>

namespace space::egress {
namespace {

constexpr std::size_t kMostHeld = 32 << 20;
constexpr uInt kGrowth = 16 << 10;  // grown by so much at a time

tl::unexpected<Error> wrong() {
  return fail(ErrorKind::unavailable, "upstream_encoding", "its compressed answer to a request with a credential cannot be read",
              "try again later");
}

}  // namespace

struct Inflater::State {
  z_stream stream{};
  bool deflate = false, started = false, ended = false;
  ~State() {
    if (started) inflateEnd(&stream);
  }
};

Inflater::Inflater(std::unique_ptr<State> state) : state_(std::move(state)) {}
Inflater::~Inflater() = default;

Result<std::unique_ptr<Inflater>> Inflater::make(bool deflate) {
  auto state = std::make_unique<State>();
  state->deflate = deflate;
  return std::unique_ptr<Inflater>(new Inflater(std::move(state)));
}

Result<std::string> Inflater::push(std::string_view bytes, bool last) {
  State& s = *state_;
  std::string out;
  if (!s.started && !bytes.empty()) {
    // A zlib header has method 8 in its low bits; raw deflate begins otherwise.
    const bool raw = s.deflate && (static_cast<unsigned char>(bytes[0]) & 0x0f) != 8;
    if (inflateInit2(&s.stream, raw ? -MAX_WBITS : s.deflate ? MAX_WBITS : MAX_WBITS + 16) != Z_OK) return wrong();
    s.started = true;
  }
  if (s.ended && !bytes.empty()) return wrong();
  s.stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  s.stream.avail_in = static_cast<uInt>(bytes.size());
  // One more piece of room, filled as far as the input goes.
  const auto step = [&] {
    const std::size_t before = out.size();
    out.resize(before + kGrowth);
    s.stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    s.stream.avail_out = kGrowth;
    const int result = inflate(&s.stream, Z_NO_FLUSH);
    out.resize(out.size() - s.stream.avail_out);
    if (result == Z_STREAM_END) s.ended = true;
    return result;
  };
  while (s.started && !s.ended && s.stream.avail_in > 0) {
    const int result = step();
    if (s.ended ? s.stream.avail_in > 0 : result != Z_OK && result != Z_BUF_ERROR) return wrong();
    if (out.size() > kMostHeld) return wrong();
  }
  // What fits the window exactly may still be inside.
  while (s.started && !s.ended && s.stream.avail_out == 0) {
    const int result = step();
    if (!s.ended && result != Z_OK) break;
    if (out.size() > kMostHeld) return wrong();
  }
  if (last && s.started && !s.ended) return wrong();
  return out;
}

}  // namespace space::egress
