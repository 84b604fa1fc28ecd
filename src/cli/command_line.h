// The `space` command: reads its words and does what they say.
#pragma once

#include <functional>

#include "cli/server_settings.h"

namespace space::cli {

// Runs a role until it is told to stop. kCannotServe (exit_status.h) as its status means: starting it again will not help.
using RunRole = std::function<int(Role, const ServerSettings&)>;

int run_program(int argc, char** argv, const RunRole& run_role);  // the exit status of the process

}  // namespace space::cli
