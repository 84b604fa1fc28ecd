#include "warden/jail_filter.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <initializer_list>
#include <memory>
#include <cstring>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67  // Linux 6.4
#endif

namespace space::warden {
namespace {

// By name, so that calls of newer kernels can stand here; a name that libseccomp does not know is left out.
constexpr const char* kRefused[] = {
    // namespaces and mounts
    "unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "open_tree_attr", "statmount", "listmount",
    // other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd", "pidfd_open",
    // kernel interfaces that a VMM has no business with
    "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "fanotify_init", "open_by_handle_at", "name_to_handle_at", "lookup_dcookie", "quotactl", "quotactl_fd", "acct", "landlock_create_ruleset",
    "memfd_secret", "move_pages", "migrate_pages", "vmsplice", "modify_ldt", "personality",
    // the machine
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "syslog", "settimeofday",
    "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex", "stime", "iopl", "ioperm", "vhangup", "sethostname", "setdomainname", "nfsservctl",
    "mknod", "mknodat"};

}  // namespace

Result<std::vector<sock_filter>> jail_filter() {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ALLOW), seccomp_release);
  if (!filter) return fail(ErrorKind::internal, "seccomp_failed", "libseccomp gave no filter");
  int error = 0;
  auto refuse = [&](const char* name, int with, std::initializer_list<scmp_arg_cmp> when = {}) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;
    const int result = seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(static_cast<unsigned>(with)), number,
                                              static_cast<unsigned>(when.size()), when.begin());
    if (result != 0 && error == 0) error = result;
  };
  for (const char* name : kRefused) refuse(name, EPERM);
  // clone3 takes its flags from memory, where a filter cannot look: without it libc falls back to clone.
  refuse("clone3", ENOSYS);
  for (const scmp_datum_t flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP})
    refuse("clone", EPERM, {SCMP_A0_64(SCMP_CMP_MASKED_EQ, flag, flag)});
  refuse("socket", EAFNOSUPPORT, {SCMP_A0_32(SCMP_CMP_NE, AF_UNIX)});
  // A VMM that was taken over and crashes on purpose must not feed its memory to the host's core dump handler, nor to page merging.
  refuse("prctl", EPERM, {SCMP_A0_32(SCMP_CMP_EQ, PR_SET_DUMPABLE)});
  refuse("prctl", EPERM, {SCMP_A0_32(SCMP_CMP_EQ, PR_SET_MEMORY_MERGE)});
  refuse("madvise", EINVAL, {SCMP_A2_32(SCMP_CMP_EQ, MADV_MERGEABLE)});
  // It reads and writes its TAP and sets the form of its frames; who owns the interface, how long it lives and what filters it is the warden's.
  for (const scmp_datum_t request : std::initializer_list<scmp_datum_t>{TUNSETOWNER, TUNSETGROUP, TUNSETPERSIST, TUNSETLINK, TUNSETCARRIER, TUNSETTXFILTER, TUNATTACHFILTER, TUNDETACHFILTER, TUNSETQUEUE,
                                     TUNSETSTEERINGEBPF, TUNSETFILTEREBPF, TUNSETIFF, TUNSETDEBUG, SIOCGSKNS})
    refuse("ioctl", EPERM, {SCMP_A1_32(SCMP_CMP_EQ, request)});
  for (const scmp_datum_t request : std::initializer_list<scmp_datum_t>{SIOCSIFHWADDR, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFMTU}) refuse("ioctl", EPERM, {SCMP_A1_32(SCMP_CMP_EQ, request)});
  refuse("socketpair", EAFNOSUPPORT, {SCMP_A0_32(SCMP_CMP_NE, AF_UNIX)});

  Fd file(::memfd_create("filter", MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "memfd_create");
  if (error == 0) error = seccomp_export_bpf(filter.get(), file.get());
  if (error != 0) return fail_errno(-error, "compile the seccomp filter");
  ::lseek(file.get(), 0, SEEK_SET);
  TRY(const std::string bytes, read_fd(file, 1 << 20));
  std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
  std::memcpy(program.data(), bytes.data(), program.size() * sizeof(sock_filter));
  return program;
}

}  // namespace space::warden
