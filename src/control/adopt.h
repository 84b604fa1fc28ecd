// Taking up what the store does not know: its database was lost, or is older than what node and the gateway have on their disks.
//
// node keeps with each sandbox what the store alone knows of it (`kept`), as one text that nobody else reads; the reconciliation sees to it
// that it is up to date. The network's policy is with the gateway, which has the last one on its disk. What is not taken up: keys,
// operations, events and kept answers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/types.h"

namespace space::control {

class Session;
struct EgressSettings;

// The settings that node keeps for the store.
struct Kept {
  std::map<std::string, std::string> metadata;
  std::int64_t time_limit_s = 0;
  RestPolicy rest;
  std::string settings;  // Store::put_settings
  std::vector<std::uint16_t> public_ports;
  std::int64_t ends_ms = 0, remaining_ms = 0;  // where somebody moved its end beyond what the limit says, else 0
};

inline constexpr std::size_t kMostKept = 128 << 10;  // node takes no more
inline constexpr std::int64_t kLeastAnewMs = 600'000;

// "" when there is nothing to keep. What would be too long leaves the settings of another API out, then the rest.
std::string encode(const Kept& kept);
Result<Kept> decode_kept(const std::string& text);

namespace changes {

// Of every sandbox that node may have, by its id, or of the one that is named.
std::map<std::string, std::string> kept_settings(Session& session, const std::string& sandbox);
// `sandbox` as node has it, with its state. False, and nothing is done: it was deleted, as an operation or an event still tells. A time
// limit begins anew, and lasts kLeastAnewMs at least; a later end that somebody set stays.
bool adopt_sandbox(Session& session, Sandbox sandbox, const Kept& kept, std::int64_t now_ms);
// The gateway's, where it is later than the store's and the sandbox is the tenant's.
bool adopt_egress(Session& session, const EgressSettings& settings, std::int64_t now_ms);
// Tenants that have sandboxes and no key, and how many.
std::map<std::string, std::int64_t> tenants_without_key(Session& session);

}  // namespace changes
}  // namespace space::control
