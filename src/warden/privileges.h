// What the warden keeps of root's capabilities (capabilities(7)) and of the kernel's calls.
#pragma once

#include "base/result.h"

namespace space::warden {

// Gives up, for this process and whatever it starts, every capability but those the warden works with, and privileges gained by
// exec. For good; before the process has threads.
Result<> keep_needed_privileges();

// A filter (confine/filter.h) that is a list of what the warden and its VMMs before their own filter call: mounts, namespaces and users,
// but not what else CAP_SYS_ADMIN would open: bpf, tracing, modules, swap, keys, quotas, clocks. For good; before the process has threads.
// (Landlock cannot stand here: within it nothing is mounted, by VMMs neither.)
Result<> keep_needed_calls();

// Takes CAP_SYS_ADMIN from the calling thread alone, which is about to end: what it opens then gives its holder no more than the
// opened file itself (the kernel shows physical addresses in pagemap by the rights of the opener).
Result<> lower_this_thread();

}  // namespace space::warden
