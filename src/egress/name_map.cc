#include "egress/name_map.h"

#include <fmt/format.h>

#include "egress/name.h"

namespace space::egress {
namespace {

constexpr std::uint32_t kFirst = 198U << 24 | 18U << 16;  // 198.18.0.0/15, RFC 2544
constexpr std::uint32_t kSize = 1U << 17;
constexpr std::array<std::uint8_t, 12> kPrefix6 = {0xfd, 0x00, 0x5a, 0xce, 0xc6, 0x12, 0, 0, 0, 0, 0, 0};

std::uint32_t low_bits(const Address& address) {
  const auto& b = address.bytes();
  return std::uint32_t{b[12]} << 24 | std::uint32_t{b[13]} << 16 | std::uint32_t{b[14]} << 8 | b[15];
}

}  // namespace

std::uint32_t NameMap::number(std::string_view name, bool* fresh) {
  if (fresh) *fresh = false;
  if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
  if (names_.size() >= kMost) return 0;
  names_.emplace_back(name);
  const auto given = static_cast<std::uint32_t>(names_.size());
  numbers_.emplace(std::string(name), given);
  if (fresh) *fresh = true;
  return given;
}

bool NameMap::is_synthetic(const Address& address) {
  const std::uint32_t low = low_bits(address);
  if (low < kFirst || low - kFirst >= kSize) return false;
  return address.is_v4() || std::equal(kPrefix6.begin(), kPrefix6.end(), address.bytes().begin());
}

const std::string* NameMap::find(const Address& address) const {
  if (!is_synthetic(address)) return nullptr;
  const std::uint32_t number = low_bits(address) - kFirst;
  return number >= 1 && number <= names_.size() ? &names_[number - 1] : nullptr;
}

Address NameMap::v4(std::uint32_t number) {
  const std::uint32_t a = kFirst + number;
  return Address::v4({static_cast<std::uint8_t>(a >> 24), static_cast<std::uint8_t>(a >> 16), static_cast<std::uint8_t>(a >> 8),
                      static_cast<std::uint8_t>(a)});
}

Address NameMap::v6(std::uint32_t number) {
  std::array<std::uint8_t, 16> bytes{};
  std::copy(kPrefix6.begin(), kPrefix6.end(), bytes.begin());
  const Address low = v4(number);
  std::copy(low.bytes().begin() + 12, low.bytes().end(), bytes.begin() + 12);
  return Address::v6(bytes);
}

json::object NameMap::to_json() const {
  json::array names;
  for (const std::string& name : names_) names.emplace_back(name);
  return {{"version", 1}, {"names", std::move(names)}};
}

Result<NameMap> NameMap::parse(const json::object& object) {
  JsonReader reader(object);
  reader.number("version", 1, 1);
  const auto names = reader.texts("names", kMost, 253);
  TRY_VOID(reader.done());
  NameMap map;
  for (std::size_t i = 0; i < names.size(); ++i) TRY_VOID(map.append(static_cast<std::uint32_t>(i + 1), names[i]));
  return map;
}

Result<> NameMap::append(std::uint32_t number, std::string_view name) {
  auto canonical = canonical_name(name);
  if (!canonical || *canonical != name || numbers_.contains(name) || number != names_.size() + 1 || number > kMost)
    return fail(ErrorKind::corrupt, "bad_names", fmt::format("the map of synthetic addresses is wrong at number {}", number));
  names_.emplace_back(name);
  numbers_.emplace(std::string(name), number);
  return {};
}

}  // namespace space::egress
