// What the rules of a sandbox's namespace refuse before the gateway sees it (src/net/ruleset.cc), counted in packets since the namespace
// was made. The warden reads the counts, node passes on how they grew, the gateway writes it into the audit log (docs/egress.md).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace space::wire {

enum class Refusal : std::size_t {
  frames,       // another sender's address, or no IP
  protocols,    // neither TCP nor DNS
  syn_rate,     // more new TCP connections a second than may be
  connections,  // more TCP connections at once than may be
  dns_flows,    // more questions at once than may be
};

// The name of each: of its counter in nft, and of its field wherever counts are written down.
inline constexpr std::array<std::string_view, 5> kRefusals{"frames", "protocols", "syn_rate", "connections", "dns_flows"};

using Refusals = std::array<std::uint64_t, kRefusals.size()>;  // by Refusal

}  // namespace space::wire
