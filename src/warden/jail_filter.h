// The system calls that a VMM never needs, refused by seccomp(2) before its program starts. The VMM's own filter comes on top.
#pragma once

#include <linux/filter.h>
#include <vector>

#include "base/result.h"

namespace space::warden {

// What is refused: new namespaces and mounts, tracing, reading other processes, kernel keys, bpf, performance events, io_uring,
// userfaultfd, opening by handle, modules, clocks, sockets of any family but AF_UNIX, becoming dumpable, and offering pages for
// merging. Compiled once; loading it takes microseconds.
Result<std::vector<sock_filter>> jail_filter();

}  // namespace space::warden
