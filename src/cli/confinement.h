// What a role gives up for good before it does anything else. In the role's own process, before it has threads.
#pragma once

#include "base/result.h"
#include "cli/server_settings.h"

namespace space::cli {

// No core dumps, undumpable, an empty bounding set, no new privileges, and a filter (seccomp(2)) that refuses what no role needs:
// namespaces, mounts, tracing, other processes' memory, bpf, keys, modules, io_uring, becoming dumpable; to api also starting a
// program. The warden keeps its own, smaller rules (warden/privileges.h): from it only core dumps are taken, as from a node with the
// driver `sim`, whose sandboxes are processes of its own. What fails is a reason not to serve: no role runs with half of it.
Result<> confine(Role role, const ServerSettings& settings);

}  // namespace space::cli
