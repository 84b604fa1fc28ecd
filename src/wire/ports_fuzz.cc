#include <cstdint>
#include <cstdlib>

#include "wire/ports.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto found = space::wire::port_of_path(text); found && (found->port == 0 || !found->target.starts_with('/'))) std::abort();
  if (const auto found = space::wire::port_of_host(text, "d.test"); found && found->port == 0) std::abort();
  return 0;
}
