// Everything that the gateway was told about one sandbox, as one value: PUT /sandboxes/{id} replaces it whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "egress/binding.h"
#include "egress/policy.h"

namespace space::egress {

struct Limits {  // 0: none
  std::uint32_t connections = 256;
  std::uint64_t requests_per_second = 0;
  std::uint64_t bytes_per_second = 0;
  std::uint64_t total_bytes = 0;
};

struct Settings {
  std::string tenant;
  std::string lineage;          // whose CA its TLS is ended with
  std::int64_t generation = 0;  // of this value; only grows
  std::shared_ptr<const Policy> policy = Policy::none();
  Limits limits;
  std::vector<Binding> bindings;
  json::object document;  // what was parsed, for storage and comparison

  // {"tenant","lineage","generation","policy","limits","credentials"}; a missing policy is none. Unknown fields are refused.
  static Result<Settings> parse(const json::object& object);
};

// How a connection that `verdict` allows is handled, which the rule alone does not decide: a bare address has no certificate, and what
// a binding covers is never passed on unread.
Verdict::Handling handling_of(const Verdict& verdict, const Settings& settings, const Destination& to);

}  // namespace space::egress
