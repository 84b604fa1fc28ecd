#include <cstddef>
#include <cstdint>

#include "wire/egress_handover.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)space::wire::parse_egress_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
