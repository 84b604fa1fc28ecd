// Checkpoints as E2B's snapshots, and new sandboxes out of them.
#pragma once

#include "control/checkpoints.h"
#include "e2b/request.h"
#include "e2b/state.h"

namespace space::e2b {

using Snapshot = control::Checkpoint;  // its name may hold a tag: "name:tag"
// The tenant's checkpoints, the newest first; of one sandbox when it is named. node_unavailable, or node's own errors.
Task<std::vector<Snapshot>> snapshots_of(State& state, std::string tenant, std::string sandbox);
// What the text of a request means, as template_id_of gives it: by id or by name. Newest first; none where there is none.
Task<std::vector<Snapshot>> find_snapshots(State& state, std::string tenant, std::string wanted);
// Gone when it returns. checkpoint_not_found.
Task<> remove_snapshot(State& state, std::string tenant, std::string id);

// A new running sandbox with an id, tokens and a time of its own. `document`: its egress policy, checked before; "" for none.
Task<control::Sandbox> make_from(State& state, std::string tenant, Snapshot from, CreateBody wanted, std::string document);

}  // namespace space::e2b
