// What a worker may still do once it serves guests: use the descriptors it has, and make Internet sockets. Nothing else.
#pragma once

#include "base/result.h"

namespace space::egress {

// For good, for this process. Landlock, where the kernel has it: no file, no TCP port of its own, no signal to others, no abstract socket.
// A filter that allows what an event loop over sockets needs: no file is opened, no program started, no process or thread made, looked into
// or signalled, and no socket but IPv4 and IPv6 ones. What only an attacker calls ends the worker; the rest fails with EPERM or ENOSYS.
// Needs no_new_privs; before threads are made.
Result<> enter_worker_jail();

}  // namespace space::egress
