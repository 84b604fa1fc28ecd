#include "egress/jail.h"

#include <cerrno>
#include <memory>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace space::egress {
namespace {

// By name, so that calls of other architectures and kernels can stand here; a name that libseccomp does not know is left out.
constexpr const char* kAllowed[] = {
    // descriptors
    "read", "write", "readv", "writev", "close", "fcntl", "fcntl64", "fstat", "newfstatat", "dup", "dup3", "lseek", "ioctl",
    // sockets
    "accept", "accept4", "bind", "connect", "listen", "getsockname", "getpeername", "getsockopt", "setsockopt", "shutdown", "sendto", "sendmsg", "sendmmsg", "recvfrom",
    "recvmsg", "recvmmsg",
    // the event loop
    "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "timerfd_create", "timerfd_settime", "timerfd_gettime", "poll", "ppoll", "select",
    "pselect6",
    // memory, time, chance
    "brk", "mmap", "munmap", "mremap", "madvise", "mprotect", "futex", "futex_waitv", "clock_gettime", "clock_nanosleep", "nanosleep", "gettimeofday", "time", "getrandom",
    "sched_yield", "membarrier", "rseq",
    // about itself
    "getpid", "gettid", "getuid", "geteuid", "getgid", "getegid", "getrusage", "prlimit64", "sysinfo", "uname", "getppid", "set_robust_list", "rt_sigaction", "rt_sigprocmask",
    "rt_sigreturn", "sigaltstack", "restart_syscall", "exit", "exit_group", "tgkill"};

}  // namespace

Result<> enter_worker_jail() {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release);
  if (!filter) return fail(ErrorKind::internal, "seccomp_failed", "libseccomp gave no filter");
  int error = 0;
  const auto note = [&](int result) {
    if (result != 0 && error == 0) error = result;
  };
  for (const char* name : kAllowed)
    if (const int number = seccomp_syscall_resolve_name(name); number != __NR_SCMP_ERROR) note(seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, number, 0));
  for (const int family : {AF_INET, AF_INET6}) note(seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0_32(SCMP_CMP_EQ, static_cast<scmp_datum_t>(family))));
  note(seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 1));
  if (error == 0) error = seccomp_load(filter.get());
  if (error != 0) return fail_errno(-error, "set the system call filter of a worker");
  return {};
}

}  // namespace space::egress
