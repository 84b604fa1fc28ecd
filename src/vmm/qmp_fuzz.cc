// Whatever a VMM sends: no crash, no unbounded memory, and the same messages however the stream is cut into pieces.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "vmm/qmp_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::vmm;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = data[0] + std::size_t{1};
  QmpLines whole, cut;
  const auto expected = whole.feed(text);
  std::vector<std::string> lines;
  bool failed = false;
  for (std::size_t at = 0; at < text.size() && !failed; at += piece) {
    auto some = cut.feed(text.substr(at, piece));
    failed = !some;
    if (some) lines.insert(lines.end(), some->begin(), some->end());
  }
  if (expected && (failed || lines != *expected)) std::abort();
  if (!expected && !failed) std::abort();
  for (const std::string& line : lines) {
    auto message = parse_qmp_message(line);
    if (!message && message.error().code != "qmp_protocol") std::abort();
    if (message)
      if (auto* error = std::get_if<QmpError>(&*message); error && error->description.size() > 500) std::abort();
  }
  (void)printable(text, 100);
  return 0;
}
