// The entry of each role: takes the settings apart into the role's own configuration and runs it until it is told to stop.
#pragma once

#include "cli/server_settings.h"

namespace space::cli {

// Returns the exit status of the process. kCannotServe (exit_status.h) means: starting it again will not help.
int run_role(Role role, const ServerSettings& settings);

}  // namespace space::cli
