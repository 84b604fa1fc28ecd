// What a role gives up for good: before it does anything else, and once it has opened what it needs more for. In the role's own process,
// before it has threads.
#pragma once

#include "base/result.h"
#include "cli/server_settings.h"

namespace space::cli {

// Before anything else. No core dumps, undumpable, an empty bounding set, no new privileges, no real-time priority, and a filter
// (seccomp(2)) that is a list of what the role calls: memory, files, sockets of its kinds; to node and egress also starting programs. The
// warden keeps its own, smaller rules (warden/privileges.h): from it only core dumps are taken, as from a node with the driver `sim`, whose
// sandboxes are processes of its own. What fails is a reason not to serve: no role runs with half of it.
Result<> confine(Role role, const ServerSettings& settings);

// When the role is who it is to be and has opened what asks for more: Landlock (confine/landlock.h), nothing but its own folders and the
// programs that it starts. Nothing where `confine` leaves the role alone, and with --bench-without-filters.
Result<> enclose(Role role, const ServerSettings& settings);

}  // namespace space::cli
