// Feeds hostile bytes to the reader of the agent's frames, cut at places that the input chooses. What was read must encode to
// what was sent, and a reader that failed must stay failed.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "wire/agent_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::wire;
  if (size < 1) return 0;
  const std::size_t piece = data[0] + 1u;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameReader reader;
  std::string again;
  std::size_t fed = 0;
  bool failed = false;
  for (std::size_t at = 0; at < all.size(); at += piece) {
    auto frames = reader.feed(all.substr(at, piece));
    if (failed && frames) std::abort();
    if (!frames) {
      failed = true;
      continue;
    }
    fed += std::min(piece, all.size() - at);
    for (const Frame& frame : *frames) {
      if (frame.payload.size() > kMaxFramePayload) std::abort();
      if (frame.type == FrameType::exit) {
        const auto exit = decode_exit(frame.payload);
        if (exit && encode_exit(*exit) != frame.payload) std::abort();
      }
      again += encode_frame(frame);
    }
  }
  if (again.size() > fed || all.substr(0, again.size()) != again) std::abort();
  return 0;
}
