// Labels whose names begin with "space." are the server's own: it knows its hidden sandboxes by them (volumes, builds), so no client sets,
// changes or takes one away, and what is made of such a sandbox has none of them. Pure functions.
#pragma once

#include <string_view>

#include "base/result.h"

namespace space::control {

inline constexpr std::string_view kOwnLabels = "space.";
bool is_own_label(std::string_view name);
// For every label that a client names: invalid_argument/label_reserved for the server's own.
Result<> check_label(std::string_view name);

}  // namespace space::control
