// The one privileged role: namespaces, jails, cgroups, and descriptors handed to node. See docs/warden.md.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace space::warden {

struct WardenConfig {
  std::string run_dir = "/run/space";       // warden.sock and warden/ (private) are made in it
  std::string data_dir = "/var/lib/space";  // vmm/<build>/ is kept in it
  uid_t uid_base = 7340032;                 // VMMs get uid_base + 1000 + slot
  std::vector<uid_t> peer_uids;             // who may ask, beside root; empty: node's, uid_base + 2
  std::string vmm_binary = "/usr/bin/qemu-system-x86_64";
  unsigned ready_namespaces = 4;  // kept in stock; 0 to 64
  bool allow_no_limits = false;   // start although the host has no cgroup controllers we can use
  bool without_filter = false;    // VMMs get no filter of ours and no Landlock: only to measure what they cost
};

// Serves until SIGTERM or SIGINT; VMMs go on running then, and after a crash. Needs root. Returns the exit status: 0, or 1 after
// an error at the start, which is logged. Once per process: it blocks signals and gives up capabilities for good.
int run(const WardenConfig& config);

}  // namespace space::warden
