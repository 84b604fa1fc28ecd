// Whatever is read must be the same when it is written again, however the bytes were cut.
#include <cstdlib>

#include "agent/envd_connect.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace space::agent::connect;
  if (size < 1) return 0;
  const std::size_t cut = 1 + data[0] % 32;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  EnvelopeReader reader(1 << 16);
  std::string again;
  for (std::size_t at = 0; at < bytes.size(); at += cut) {
    const auto messages = reader.feed(bytes.substr(at, cut));
    if (!messages) return 0;
    for (const Envelope& message : *messages) again += envelope(message.payload, message.last);
  }
  if (reader.between() && again != bytes) std::abort();
  if (!bytes.starts_with(again)) std::abort();
  return 0;
}
