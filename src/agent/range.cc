#include "agent/range.h"

#include <algorithm>
#include <charconv>

namespace space::agent {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ByteRange> parse_range(std::string_view header, std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  const std::size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.find(',') != std::string_view::npos) return std::nullopt;
  const auto first = number(header.substr(0, dash)), last = number(header.substr(dash + 1));
  const bool has_last = dash + 1 < header.size();
  if (has_last && !last) return std::nullopt;
  if (dash == 0) {  // the last so many bytes
    if (!last) return std::nullopt;
    const std::uint64_t length = std::min(*last, size);
    return ByteRange{size - length, length, length > 0};
  }
  if (!first || (last && *last < *first)) return std::nullopt;
  if (*first >= size) return ByteRange{0, 0, false};
  const std::uint64_t end = last ? std::min(*last, size - 1) : size - 1;
  return ByteRange{*first, end - *first + 1, true};
}

}  // namespace space::agent
