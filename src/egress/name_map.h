// The synthetic addresses of one sandbox: which name each stands for. An address is never given to another name in the sandbox's
// life, so that whatever a guest remembers still means the same host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "egress/address.h"

namespace space::egress {

class NameMap {
 public:
  static constexpr std::uint32_t kMost = 16'384;  // names in a sandbox's life

  // The address number of a name, 1 and up; 0 when the map is full. `fresh` tells that it was given just now.
  std::uint32_t number(std::string_view canonical_name, bool* fresh = nullptr);
  // The name behind a synthetic address of either family; nullptr for any other address.
  const std::string* find(const Address& address) const;
  bool contains(std::string_view canonical_name) const { return numbers_.find(canonical_name) != numbers_.end(); }
  static bool is_synthetic(const Address& address);
  static Address v4(std::uint32_t number);  // 198.18.0.0 + number
  static Address v6(std::uint32_t number);  // fd00:5ace:c612:: + the IPv4 form

  std::size_t size() const { return names_.size(); }
  const std::vector<std::string>& names() const { return names_; }  // number 1 stands first

  // Part of a checkpoint: {"version":1,"names":["…", …]} in the order of their numbers.
  json::object to_json() const;
  static Result<NameMap> parse(const json::object& object);
  Result<> append(std::uint32_t number, std::string_view name);  // the next number only

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> numbers_;
};

}  // namespace space::egress
