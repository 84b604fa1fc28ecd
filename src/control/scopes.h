// What an API key may do. A set of four words; plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace space::control {

enum class Scope : std::uint8_t {
  read = 1,     // look at what the tenant has, and at its files
  run = 2,      // make sandboxes, change and use them; holds `read`
  publish = 4,  // add and remove templates
  admin = 8,    // make and revoke keys; holds all the others
};

class Scopes {
 public:
  static Scopes all() { return Scopes(static_cast<std::uint8_t>(Scope::admin)); }
  // {"read", "run"}: nothing when the list is empty or a word is unknown.
  static std::optional<Scopes> parse(const std::vector<std::string>& words);
  static Scopes from_text(std::string_view text);  // as `text()` wrote it; an unknown word gives no right

  bool allows(Scope needed) const;
  std::vector<std::string> words() const;
  std::string text() const;  // "read,run"
  bool operator==(const Scopes&) const = default;

 private:
  explicit Scopes(std::uint8_t bits) : bits_(bits) {}
  std::uint8_t bits_;
};

std::string_view to_string(Scope scope);

// 1 to 64 of [a-z0-9_-], the first a letter or a digit.
bool is_tenant(std::string_view text);

}  // namespace space::control
