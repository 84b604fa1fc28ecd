// A target that is accepted must mean the same after it was written again.
#include <cstdlib>

#include "base/encoding.h"
#include "http/message.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace space;
  const auto target = http::parse_target({reinterpret_cast<const char*>(data), size});
  if (!target) return 0;
  std::string again;
  for (const std::string& segment : target->segments) {
    if (segment.empty() || segment == "." || segment == "..") std::abort();
    again += "/" + percent_encode(segment);
  }
  if (again.empty()) again = "/";
  char separator = '?';
  for (const auto& [name, value] : target->query) {
    again += separator + percent_encode(name) + "=" + percent_encode(value);
    separator = '&';
  }
  const auto second = http::parse_target(again);
  if (!second) return again.size() > 8192 ? 0 : (std::abort(), 0);
  if (second->segments != target->segments || second->query != target->query) std::abort();
  return 0;
}
