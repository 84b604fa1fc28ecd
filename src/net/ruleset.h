// The nft rules of a sandbox's namespace: the same text for every sandbox. docs/warden.md explains each rule. What refuses counts, under
// the names of wire::kRefusals; what lets pass does not, and nor does what a guest's own kernel sends unasked (broadcasts, the search for
// an address), or QEMU after a load (RARP).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace space::net {

inline constexpr const char* kTapName = "tap0";
inline constexpr const char* kGuestMac = "02:5a:ce:00:00:02";
inline constexpr const char* kHostMac = "02:5a:ce:00:00:01";
inline constexpr const char* kGuestLinkLocal = "fe80::5a:ceff:fe00:2";  // of kGuestMac, RFC 4291 appendix A
inline constexpr std::uint16_t kEgressTcpPort = 15001;                  // every TCP connection of the guest arrives here
inline constexpr std::uint16_t kEgressDnsPort = 15053;                  // UDP and TCP to port 53

// Fewer connections than the accept queue of the gateway holds (kEgressBacklog), so that a queue never fills up silently: what
// comes beyond the limit is refused with a reset.
inline constexpr unsigned kMaxConnections = 1024;
inline constexpr unsigned kMaxDnsFlows = 256;
inline constexpr unsigned kMaxSynPerSecond = 200;
inline constexpr int kEgressBacklog = 2048;

std::string ruleset();

// Loads a rule text into the calling thread's network namespace, all or nothing. Blocks for some milliseconds; callers on several
// threads wait for each other, since libnftables has state of its own.
Result<> load_ruleset(const std::string& text);

}  // namespace space::net
