// What makes a sandbox a volume (docs/e2b.md). Pure functions; that a tenant's volumes have names of their own is for the store to keep:
// conflict/volume_exists of accept_create.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "control/node.h"
#include "control/types.h"

namespace space::control {

inline constexpr const char* kVolumeTemplate = "base:latest";

// 1 to 128 of letters, digits, dash and underscore.
bool is_volume_name(std::string_view name);
// A row that is not in the store yet, with an id of its own and no network. `size`: that of kVolumeTemplate.
Sandbox new_volume(std::string tenant, std::string name, const TemplateSize& size, std::int64_t now_ms);
// One that can be used or woken: not while it is deleted, nor one that never came to be.
bool is_volume_there(const Sandbox& sandbox);

}  // namespace space::control
