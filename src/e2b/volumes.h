// E2B's volumes. Each is a small sandbox of its tenant's that nobody sees as one (control::is_volume): its disk keeps the files, its agent
// serves them (src/agent/volume.h), it rests when it is not used and wakes for the next use. Its id is the volume's.
#pragma once

#include <string>
#include <vector>

#include "e2b/state.h"

namespace space::e2b {

// volume_not_found for everything else: other tenants', deleted ones, sandboxes.
Task<control::Sandbox> find_volume(State& state, std::string tenant, std::string id);
Task<std::vector<control::Sandbox>> volumes_of(State& state, std::string tenant, std::string name);  // "": all, the newest first
Task<control::Sandbox> make_volume(State& state, std::string tenant, std::string name);  // invalid_argument/volume_exists, invalid_request
Task<> remove_volume(State& state, control::Sandbox volume);
// It runs when this returns. volume_not_ready.
Task<> wake_volume(State& state, control::Sandbox volume);

// What opens the content of one: the same as long as there is the volume.
Task<std::string> volume_token(State& state, const control::Sandbox& volume);
// A request to /volumecontent/{volume}/…: its token must be the volume's. Sets the exchange's tenant.
Task<> admit_to_volume(State& state, http::Exchange& exchange, std::string token);

// Fills in which volumes are meant. invalid_argument/volume_not_found.
Task<> find_mounts(State& state, std::string tenant, std::vector<VolumeMount>& mounts);
// The sandbox has exactly these, and when it runs they work when this returns.
Task<> mount_volumes(State& state, control::Sandbox sandbox, std::vector<VolumeMount> mounts);

// A snapshot's memory has the mounts of its sandbox; so have those that are made of it, as far as the volumes are there.
Task<> keep_mounts_of_snapshot(State& state, std::string snapshot, std::vector<VolumeMount> mounts);
Task<std::vector<VolumeMount>> mounts_of_snapshot(State& state, std::string tenant, std::string snapshot);
Task<> forget_mounts_of_snapshot(State& state, std::string snapshot);

}  // namespace space::e2b
