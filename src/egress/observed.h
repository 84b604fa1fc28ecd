// What a sandbox reached for, for the monitor mode: the allowlist that would have sufficed.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/json.h"
#include "egress/policy.h"

namespace space::egress {

class Observed {
 public:
  static constexpr std::size_t kMost = 1024;       // destinations; more are not kept, and the answer says so
  static constexpr std::size_t kMostMethods = 32;  // of one destination

  void note(const Destination& to, Protocol protocol, std::string_view method);
  // {"policy":{"mode":"allowlist","rules":[…]},"complete":bool}
  json::object to_json() const;

 private:
  struct Key {
    std::string host;  // name, or address
    std::uint16_t port;
    Protocol protocol;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::set<std::string>> seen_;
  bool complete_ = true;
};

}  // namespace space::egress
