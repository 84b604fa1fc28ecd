#include "warden/privileges.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "confine/calls.h"
#include "confine/filter.h"

namespace space::warden {
namespace {

// Each with what fails without it.
constexpr std::array kNeeded = {
    CAP_SYS_ADMIN,        // namespaces, mounts, setns, joining a cgroup
    CAP_NET_ADMIN,        // TAP, addresses, nft rules
    CAP_SETUID,           // the VMM's own uid,
    CAP_SETGID,           // and gid
    CAP_SETPCAP,          // emptying the VMM's capability bounding set
    CAP_MKNOD,            // the VMM's /dev
    CAP_KILL,             // ending a VMM, which has another uid
    CAP_SYS_PTRACE,       // /proc/PID/mem and pagemap of an undumpable process
    CAP_FOWNER,           // the immutable flag on a file of node's,
    CAP_LINUX_IMMUTABLE,  // which is a right of its own
    CAP_CHOWN,            // the request socket to node's group
    CAP_DAC_OVERRIDE,     // run and data folders that an operator gave to another uid
};

// Beside what every program does: what the warden does, and what a VMM does before its own filter, which comes on top of this one.
constexpr const char* kOwnCalls[] = {"clone",
                                     "clone3",
                                     "unshare",
                                     "setns",
                                     "mount",
                                     "umount2",
                                     "pivot_root",
                                     "mknod",
                                     "mknodat",
                                     "sethostname",
                                     "setgroups",
                                     "setresgid",
                                     "setresuid",
                                     "capget",
                                     "capset",
                                     "setrlimit",
                                     "prlimit64",
                                     "bind",
                                     "connect",
                                     "memfd_create",
                                     "signalfd4",
                                     "tgkill",
                                     "seccomp",
                                     "prctl",
                                     "ioctl",
                                     "madvise",
                                     "landlock_create_ruleset",
                                     "landlock_add_rule",
                                     "landlock_restrict_self"};

}  // namespace

Result<> keep_needed_calls() {
  confine::Filter filter;
  filter.allow(kOwnCalls);
  filter.allow_serving();
  filter.allow(confine::kPrograms);
  filter.allow_sockets({AF_UNIX, AF_INET, AF_INET6, AF_NETLINK});
  filter.refuse(confine::kAttacks, EPERM);
  return filter.load();
}

Result<> keep_needed_privileges() {
  const std::unique_ptr<std::remove_pointer_t<cap_t>, decltype(&cap_free)> now(cap_get_proc(), cap_free), kept(cap_init(), cap_free);
  if (!now || !kept) return fail_errno(errno, "read capabilities");
  for (const cap_value_t capability : kNeeded) {
    cap_flag_value_t have = CAP_CLEAR;
    cap_get_flag(now.get(), capability, CAP_PERMITTED, &have);
    if (have != CAP_SET) {
      const std::unique_ptr<char, decltype(&cap_free)> name(cap_to_name(capability), cap_free);
      return fail(ErrorKind::permission_denied, "not_privileged", std::string("the warden needs ") + name.get(),
                  "start it as root, outside a restricted container");
    }
    cap_set_flag(kept.get(), CAP_PERMITTED, 1, &capability, CAP_SET);
    cap_set_flag(kept.get(), CAP_EFFECTIVE, 1, &capability, CAP_SET);
  }
  for (cap_value_t capability = 0; cap_get_bound(capability) >= 0; ++capability)
    if (std::find(kNeeded.begin(), kNeeded.end(), capability) == kNeeded.end() && cap_drop_bound(capability) != 0)
      return fail_errno(errno, "drop a capability");
  if (cap_set_proc(kept.get()) != 0) return fail_errno(errno, "give up capabilities");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "set no_new_privs");
  return {};
}

Result<> lower_this_thread() {
  const std::unique_ptr<std::remove_pointer_t<cap_t>, decltype(&cap_free)> now(cap_get_proc(), cap_free);
  const cap_value_t admin = CAP_SYS_ADMIN;
  if (!now || cap_set_flag(now.get(), CAP_EFFECTIVE, 1, &admin, CAP_CLEAR) != 0 || cap_set_proc(now.get()) != 0)
    return fail_errno(errno, "lower a thread's capabilities");
  return {};
}

}  // namespace space::warden
