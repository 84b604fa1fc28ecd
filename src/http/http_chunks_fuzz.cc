// A chunked body decodes to the same bytes however it is cut into pieces.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "http/chunk.h"

namespace {

std::string decode(std::string_view text, std::size_t step) {
  space::http::ChunkDecoder chunks;
  std::string data;
  while (!text.empty() && !chunks.done() && !chunks.bad()) {
    std::size_t taken = std::min(step, text.size());
    if (const auto left = chunks.data_left(); left > 0) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(left, taken));
      data += text.substr(0, taken);
      chunks.took(taken);
    } else {
      taken = chunks.consume(text.substr(0, taken));
      if (taken == 0) std::abort();
    }
    text.remove_prefix(taken);
  }
  return (chunks.bad() ? "bad " : chunks.done() ? "done " : "more ") + data;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (decode(text, 1) != decode(text, text.size() + 1)) std::abort();
  return 0;
}
