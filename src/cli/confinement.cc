#include "cli/confinement.h"

#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <memory>

#include "base/log.h"

namespace space::cli {
namespace {

// By name, so that calls of newer kernels can stand here; a name that libseccomp does not know is left out.
constexpr const char* kRefused[] = {
    // namespaces and mounts
    "unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount",
    "fspick", "mount_setattr",
    // other processes (a VM's memory comes from the warden as an open file)
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd",
    // parts of the kernel that no role works with; a VM's userfaultfd is made by the VMM and comes as an open file
    "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "fanotify_init", "open_by_handle_at", "lookup_dcookie", "quotactl", "quotactl_fd", "acct", "move_pages", "migrate_pages", "modify_ldt", "personality",
    // the machine
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "syslog", "settimeofday",
    "clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm", "vhangup", "sethostname", "setdomainname", "mknod", "mknodat"};

Result<> load_filter(bool starts_programs) {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ALLOW), seccomp_release);
  if (!filter) return fail(ErrorKind::internal, "seccomp_failed", "libseccomp gave no filter");
  int error = 0;
  const auto refuse = [&](const char* name, int with, std::initializer_list<scmp_arg_cmp> when = {}) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;
    const int result = seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(static_cast<unsigned>(with)), number, static_cast<unsigned>(when.size()), when.begin());
    if (result != 0 && error == 0) error = result;
  };
  for (const char* name : kRefused) refuse(name, EPERM);
  if (!starts_programs)
    for (const char* name : {"execve", "execveat"}) refuse(name, EPERM);
  // clone3 takes its flags from memory, where a filter cannot look: without it libc falls back to clone.
  refuse("clone3", ENOSYS);
  for (const scmp_datum_t flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP})
    refuse("clone", EPERM, {SCMP_A0_64(SCMP_CMP_MASKED_EQ, flag, flag)});
  // api and egress say once more that they are undumpable; nobody takes it back.
  refuse("prctl", EPERM, {SCMP_A0_32(SCMP_CMP_EQ, PR_SET_DUMPABLE), SCMP_A1_32(SCMP_CMP_NE, 0)});
  if (error == 0) error = seccomp_load(filter.get());
  if (error != 0) return fail_errno(-error, "load the role's filter of system calls");
  return {};
}

// An api that is root until it has its key and port; the others were started without (supervisor.cc).
Result<> empty_bounding_set() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return fail_errno(errno, "empty the bounding set");
  return {};
}

}  // namespace

Result<> confine(Role role, const ServerSettings& settings) {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return fail_errno(errno, "forbid core dumps");
  if (role == Role::warden || (role == Role::node && settings.driver == "sim")) return {};
  if (::geteuid() == 0) TRY_VOID(empty_bounding_set());
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "give up new privileges");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "become undumpable");
  if (settings.without_filters) {
    log::warn("filter.off", {{"of", to_string(role)}, {"why", "--bench-without-filters: this server is for a measurement, not for use"}});
    return {};
  }
  return load_filter(role != Role::api);  // node has qemu-img make a base's empty disk, egress starts its workers
}

}  // namespace space::cli
