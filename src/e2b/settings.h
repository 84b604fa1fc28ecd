// What E2B's API remembers of a sandbox beside what SPACE knows: its options as the client gave them. Kept as JSON by the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace space::e2b {

inline constexpr std::size_t kMostMounts = 16;     // of a sandbox
inline constexpr std::uint16_t kEnvdPort = 49983;  // of the in-sandbox protocol; all others are the guest's own servers

// A volume in a sandbox.
struct VolumeMount {
  std::string name, path;
  std::string volume;  // its id; "" until it was looked up
};

struct Settings {
  bool made_here = false;        // through E2B's API
  bool secure = true;            // files and processes need the sandbox's token
  bool auto_pause = false;       // at the end of its time it is paused, else deleted
  bool pause_memory = true;      // with auto_pause: memory is kept
  bool auto_resume = false;      // traffic wakes it
  std::int64_t timeout_s = 300;  // of its create: what traffic that wakes it gives it anew
  std::int64_t started_ms = 0;   // its last run
  std::int64_t paused_ms = 0;    // 0: not paused through this API
  std::optional<bool> internet;  // allow_internet_access, when it was given
  bool public_traffic = true;    // ports need no token
  std::string mask_host;         // the Host that its servers see, with ${PORT}; "": as sent
  json::object network;          // as it is shown: no secrets
  std::vector<VolumeMount> mounts;
};

std::string encode(const Settings& settings);
// Of what was stored; "" is a sandbox that was made through the native API: its ports are private.
Result<Settings> decode_settings(std::string_view text);

// Whether the sandbox's server on this port speaks TLS itself: network.httpsPorts.
bool speaks_tls(const Settings& settings, std::uint16_t port);

json::array encode_mounts(const std::vector<VolumeMount>& mounts);
Result<std::vector<VolumeMount>> decode_mounts(const json::array& list);

}  // namespace space::e2b
