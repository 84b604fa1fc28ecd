// The same bytes give the same parts, however they are cut.
#include <cstdlib>

#include "agent/envd_multipart.h"

namespace {

using space::agent::MultipartReader;
using space::agent::PartEvent;

std::string read(std::string_view bytes, std::size_t cut, bool& failed) {
  MultipartReader reader("b");
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += cut) {
    const auto events = reader.feed(bytes.substr(at, cut));
    if (!events) {
      failed = true;
      return out;
    }
    for (const PartEvent& event : *events) {
      if (event.what == PartEvent::What::begin) out += "<" + event.name + "|" + event.filename + ">";
      if (event.what == PartEvent::What::data) out += event.data;
      if (event.what == PartEvent::What::end) out += "</>";
    }
  }
  out += reader.done() ? "." : "?";
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool one = false, other = false;
  const std::string whole = read(bytes, std::max<std::size_t>(bytes.size(), 1), one);
  const std::string pieces = read(bytes, 1 + data[0] % 16, other);
  // Body bytes at the very end may wait for a boundary in both; what was refused was refused in both.
  if (!one && !other && whole != pieces) std::abort();
  (void)space::agent::multipart_boundary(bytes);
  return 0;
}
