// The template's start command: what runs in every sandbox of it from the first moment on. It belongs to the boot: a saved machine
// holds it running, so it is started when a base is made, and again when a sandbox boots from its disk.
#pragma once

#include "base/async.h"

namespace space::agent {

struct Agent;

// As the default user, in the default folder, by a login shell, as a process that others can list and end. An error is logged: a
// sandbox whose start command cannot run is still a sandbox. For the loop; `agent` outlives it.
asio::awaitable<void> run_start_command(Agent& agent);

}  // namespace space::agent
