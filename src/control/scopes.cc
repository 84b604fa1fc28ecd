#include "control/scopes.h"

#include <algorithm>
#include <array>
#include <utility>

namespace space::control {
namespace {

constexpr std::array<std::pair<Scope, std::string_view>, 4> kNames{
    {{Scope::read, "read"}, {Scope::run, "run"}, {Scope::publish, "publish"}, {Scope::admin, "admin"}}};

std::uint8_t bit_of(std::string_view word) {
  const auto found = std::ranges::find(kNames, word, &std::pair<Scope, std::string_view>::second);
  return found == kNames.end() ? std::uint8_t{0} : static_cast<std::uint8_t>(found->first);
}

}  // namespace

std::optional<Scopes> Scopes::parse(const std::vector<std::string>& words) {
  Scopes out(0);
  for (const std::string& word : words) {
    const std::uint8_t bit = bit_of(word);
    if (bit == 0) return std::nullopt;
    out.bits_ = static_cast<std::uint8_t>(out.bits_ | bit);
  }
  if (out.bits_ == 0) return std::nullopt;
  return out;
}

Scopes Scopes::from_text(std::string_view text) {
  Scopes out(0);
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    out.bits_ = static_cast<std::uint8_t>(out.bits_ | bit_of(text.substr(0, comma)));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

bool Scopes::allows(Scope needed) const {
  const auto has = [this](Scope scope) { return (bits_ & static_cast<std::uint8_t>(scope)) != 0; };
  return has(needed) || has(Scope::admin) || (needed == Scope::read && has(Scope::run));
}

std::vector<std::string> Scopes::words() const {
  std::vector<std::string> out;
  for (const auto& [scope, name] : kNames)
    if ((bits_ & static_cast<std::uint8_t>(scope)) != 0) out.emplace_back(name);
  return out;
}

std::string Scopes::text() const {
  std::string out;
  for (const std::string& word : words()) out += (out.empty() ? "" : ",") + word;
  return out;
}

std::string_view to_string(Scope scope) { return std::ranges::find(kNames, scope, &std::pair<Scope, std::string_view>::first)->second; }

bool is_tenant(std::string_view text) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= 64 && plain(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return plain(c) || c == '-' || c == '_'; });
}

}  // namespace space::control
