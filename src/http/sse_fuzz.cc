// Events are the same however the stream is cut into pieces, and survive being written again.
#include <cstdlib>

#include "http/sse.h"

namespace {

constexpr std::size_t kLimit = 200;  // of an event as it comes; written again it has a space behind each colon

std::string read_by(std::string_view text, std::size_t step, std::vector<space::http::SseEvent>& all, std::size_t limit = kLimit) {
  space::http::SseReader reader(limit);
  for (std::size_t at = 0; at < text.size(); at += step) {
    auto events = reader.feed(text.substr(at, step));
    if (!events) return "failed";
    for (auto& event : *events) all.push_back(std::move(event));
  }
  return reader.last_id();
}

bool same(const std::vector<space::http::SseEvent>& a, const std::vector<space::http::SseEvent>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.id == y.id && x.event == y.event && x.data == y.data; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<space::http::SseEvent> one, whole, again;
  const std::string last = read_by(text, 1, one);
  const std::string other = read_by(text, text.size() + 1, whole);
  if (last != other) std::abort();
  if (last == "failed") return 0;  // what came before the failure depends on the pieces
  if (!same(one, whole)) std::abort();
  std::string written;
  for (const auto& event : whole) written += format_sse(event);
  read_by(written, written.size() + 1, again, 2 * kLimit);
  if (!same(whole, again)) std::abort();
  return 0;
}
