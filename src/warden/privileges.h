// What the warden keeps of root's capabilities (capabilities(7)).
#pragma once

#include "base/result.h"

namespace space::warden {

// Gives up, for this process and whatever it starts, every capability but those the warden works with, and privileges gained by
// exec. For good; before the process has threads.
Result<> keep_needed_privileges();

// Takes CAP_SYS_ADMIN from the calling thread alone, which is about to end: what it opens then gives its holder no more than the
// opened file itself (the kernel shows physical addresses in pagemap by the rights of the opener).
Result<> lower_this_thread();

}  // namespace space::warden
