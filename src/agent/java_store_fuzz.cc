// A keystore that a hostile guest wrote: whatever it is, it is refused, or becomes one that can be read and holds the certificate.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/java_store.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::agent;
  const auto made = java_store_with({reinterpret_cast<const char*>(data), size}, "certificate");
  if (!made) return 0;
  const auto again = java_store_with(*made, "certificate");
  const auto other = java_store_with(*made, "another one");
  if (!again || *again != *made || !other || made->find("certificate") == std::string::npos) std::abort();
  return 0;
}
