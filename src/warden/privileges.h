// What the warden keeps of root's capabilities (capabilities(7)).
#pragma once

#include "base/result.h"

namespace space::warden {

// Gives up, for this process and whatever it starts, every capability but those the warden works with, and privileges gained by
// exec. For good; before the process has threads.
Result<> keep_needed_privileges();

}  // namespace space::warden
