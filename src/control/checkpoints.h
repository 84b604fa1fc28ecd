// Checkpoints as node tells of them, and what new sandboxes have from what they are made of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "control/types.h"

namespace space::control {

class Node;

struct Checkpoint {
  std::string id, name, sandbox, lineage;  // of the sandbox that it was taken of, which may be gone
  std::string template_reference;
  std::int64_t cpus = 1, memory_mib = 512, disk_mib = 4096;
  std::string created_at = {};  // RFC 3339 in UTC: its order is that of time
};
// The tenant's, of one sandbox when it is named; the oldest first. node_unavailable, or node's own errors.
Task<std::vector<Checkpoint>> list_checkpoints(Node& node, std::string tenant, std::string sandbox = {});
Task<Checkpoint> find_checkpoint(Node& node, std::string tenant, std::string id);  // checkpoint_not_found

// What a child has from a living parent, but for the labels that are the server's own; or from a checkpoint, whose sandbox may be gone:
// then it has no labels and no limits.
struct Parent {
  explicit Parent(const Sandbox& sandbox);
  Parent(std::string of_tenant, const Checkpoint& checkpoint);
  std::string tenant, template_reference, lineage;  // lineage "": the store finds it (copy_egress)
  std::int64_t cpus, memory_mib, disk_mib;
  std::map<std::string, std::string> metadata;
  std::int64_t time_limit_s = 0;
  RestPolicy rest;
};

// What the request for it gives, in place of its parent's.
struct OwnSettings {
  std::optional<std::map<std::string, std::string>> metadata;
  std::optional<std::int64_t> time_limit_s;
  std::optional<RestPolicy> rest;
};

// A row that is not in the store yet, with an id of its own.
Sandbox child_of(const Parent& parent, OwnSettings own, std::int64_t now_ms);

}  // namespace space::control
