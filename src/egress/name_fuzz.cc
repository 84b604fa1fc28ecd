#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "egress/name.h"
#include "egress/policy.h"

// A canonical name is its own canonical form, and so is a path; neither holds a byte that could end or split it somewhere else.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::egress;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = canonical_name(text)) {
    const auto again = canonical_name(*name);
    if (!again || *again != *name || name->find_first_of(std::string_view("\0 /:@%\r\n", 8)) != std::string::npos) std::abort();
  }
  if (const auto pattern = canonical_pattern(text); pattern && canonical_pattern(*pattern) != *pattern) std::abort();
  if (const auto path = canonical_path(text);
      path && (!path->starts_with('/') || path->find("/../") != std::string::npos || path->find("//") != std::string::npos))
    std::abort();
  if (const auto object = space::parse_json_object(text)) (void)Policy::parse(*object);
  return 0;
}
