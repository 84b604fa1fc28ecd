// A child process that is PID 1 of a PID namespace, so that all it started ends with it. Private to the sim driver.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space::vmm {

struct SimProcess {
  Fd pidfd;
  pid_t pid = 0;
};

// What the child sees as its own uid and gid: "nobody" of every passwd(5). Not root, which would make the agent switch users, and
// that is not possible without rights outside of the namespace.
inline constexpr unsigned kSimId = 65534;

// Blocks shortly. argv[0] is a path. Standard output and error go to /dev/null. The child ends when the calling thread does.
Result<SimProcess> start_in_namespaces(const std::vector<std::string>& argv);
void kill_and_reap(const SimProcess& process);

}  // namespace space::vmm
