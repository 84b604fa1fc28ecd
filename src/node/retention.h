// Which checkpoints and snapshots go by themselves: by the server's rules those that somebody asked for, by the sandbox's own number
// the automatic ones, which also go with their sandbox. What is deleted is a manifest; its blobs go when nobody names them any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/vault.h"

namespace space::node {

struct RetentionSettings {
  std::uint32_t keep_checkpoints = 0;    // of each sandbox, the newest; 0: all
  std::int64_t keep_checkpoints_ms = 0;  // or as long as they are younger; 0: however old
};

// Ids of what goes, of one tenant. `kept`: for every sandbox that there is, how many automatic snapshots stay. Those with a name stay,
// and suspended sandboxes always do.
std::vector<std::string> retired(const std::vector<std::shared_ptr<const Checkpoint>>& all, const RetentionSettings& settings,
                                 const std::map<std::string, std::int64_t>& kept, std::int64_t now_ms);

// Applies them to every tenant. Blocks; `kept` was taken on the loop. What goes wrong with one tenant is logged.
void retire(Vault& vault, const RetentionSettings& settings, const std::map<std::string, std::int64_t>& kept, std::int64_t now_ms);

}  // namespace space::node
