// What a worker may still do once it serves guests: use the descriptors it has, and make Internet sockets. Nothing else.
#pragma once

#include "base/result.h"

namespace space::egress {

// For good, for this process: a system call filter that allows what an event loop over sockets needs. No file is opened, no program
// started, no process made, looked into or signalled, and no socket but IPv4 and IPv6 ones. What is not allowed fails with EPERM.
Result<> enter_worker_jail();

}  // namespace space::egress
