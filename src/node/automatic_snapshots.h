// Takes snapshots of disks by themselves, of the running sandboxes that want it: when the time since the last look has passed and the
// sandbox has worked since then. One that did nothing is not even asked. For node's loop.
#pragma once

#include <functional>

#include "node/sandboxes.h"

namespace space::node {

// What a process has used of processors, in clock ticks (fields 14 and 15 of /proc/PID/stat); 0 when it is gone.
std::uint64_t processor_ticks(pid_t pid);

// Until `stopping` is true. `ticks` is processor_ticks but in tests.
asio::awaitable<void> take_snapshots(Sandboxes& sandboxes, const bool& stopping, std::chrono::milliseconds look = std::chrono::seconds(1),
                                     std::function<std::uint64_t(pid_t)> ticks = processor_ticks);

}  // namespace space::node
