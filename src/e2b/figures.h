// What a sandbox's agent says of its use of processors, memory and disk.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace space::e2b {

// The agent's answer, read strictly, in E2B's names. What the guest could not tell is null. invalid_argument for everything else.
Result<json::object> read_figures(std::string_view text);

}  // namespace space::e2b
