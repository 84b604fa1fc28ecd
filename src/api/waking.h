// Sandboxes that rest are woken by whoever may use them, and his request waits.
#pragma once

#include "api/services.h"

namespace space::api {

// The sandbox as it is once nothing rests any more: paused and suspended ones are woken, one on its way to rest is waited for. At most a
// minute and a half; then, and where it cannot be woken, the error of the wake, or the state as it is.
Task<control::Sandbox> awake(Services& services, control::Sandbox sandbox);

}  // namespace space::api
