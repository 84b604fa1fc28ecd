// The system calls that a VMM may make, for seccomp(2) before its program starts. The VMM's own filter comes on top.
#pragma once

#include <linux/filter.h>
#include <vector>

#include "base/result.h"

namespace space::warden {

// What QEMU 7.2 calls under our arguments (vmm/qemu_arguments.h), measured over its whole life (docs/warden.md), and what glibc may call
// beside it: memory, threads of its own, descriptors, opening what its root holds, the ioctls of a TAP, with `kvm` those of KVM. No
// process, no socket, no signal to others, no name in a folder. What only an attacker calls ends it; the rest answers ENOSYS. Compiled
// once; loading it takes microseconds.
Result<std::vector<sock_filter>> jail_filter(bool kvm);

}  // namespace space::warden
