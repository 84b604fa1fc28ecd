#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "egress/client_hello.h"

// The same bytes at once and one by one must mean the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using space::egress::ClientHelloReader;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ClientHelloReader whole, pieces;
  const auto state = whole.feed(bytes);
  auto last = ClientHelloReader::State::more;
  for (char c : bytes) last = pieces.feed(std::string_view(&c, 1));
  if (size > 0 && size <= ClientHelloReader::kLimit && (state != last || whole.hello().server_name != pieces.hello().server_name))
    std::abort();
  return 0;
}
