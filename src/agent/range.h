// The Range header of RFC 9110, section 14: one range of bytes. Everything else (several ranges, another unit, nonsense) is ignored,
// as the RFC allows, and the whole is sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace space::agent {

struct ByteRange {
  std::uint64_t first = 0, length = 0;
  bool satisfiable = true;
};
std::optional<ByteRange> parse_range(std::string_view header, std::uint64_t size);  // nullopt: send the whole

}  // namespace space::agent
