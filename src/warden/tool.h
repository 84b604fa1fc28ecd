// Runs a short program of the host at the start of the warden, never later.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace space::warden {

// Its standard output (at most 256 kB), run as `uid` without capabilities or environment, 10 s at most. An exit status other than 0 is
// `tool_failed`. Before the process has threads.
Result<std::string> run_tool(const std::vector<std::string>& argv, uid_t uid);

}  // namespace space::warden
