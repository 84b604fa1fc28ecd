// Names of system calls in groups, for filters to be put together from. By name, so that calls of newer kernels can stand here: what
// libseccomp does not know is left out. Calls that are judged by their arguments stand in filter.h.
#pragma once

#include <array>

namespace space::confine {

// Memory, threads, time, signals to itself, and questions about itself: what libc calls in any program, glibc's newer ways included.
inline constexpr const char* kOfEveryProgram[] = {"brk",
                                                  "mmap",
                                                  "munmap",
                                                  "mremap",
                                                  "mprotect",
                                                  "msync",
                                                  "mincore",
                                                  "futex",
                                                  "futex_waitv",
                                                  "futex_wake",
                                                  "futex_wait",
                                                  "futex_requeue",
                                                  "set_robust_list",
                                                  "get_robust_list",
                                                  "set_tid_address",
                                                  "rseq",
                                                  "membarrier",
                                                  "sched_yield",
                                                  "sched_getaffinity",
                                                  "getcpu",
                                                  "gettid",
                                                  "getpid",
                                                  "getppid",
                                                  "getpgrp",
                                                  "getuid",
                                                  "geteuid",
                                                  "getgid",
                                                  "getegid",
                                                  "getresuid",
                                                  "getresgid",
                                                  "getgroups",
                                                  "uname",
                                                  "sysinfo",
                                                  "getrusage",
                                                  "times",
                                                  "getrlimit",
                                                  "clock_gettime",
                                                  "clock_getres",
                                                  "clock_nanosleep",
                                                  "nanosleep",
                                                  "gettimeofday",
                                                  "time",
                                                  "getrandom",
                                                  "rt_sigaction",
                                                  "rt_sigprocmask",
                                                  "rt_sigreturn",
                                                  "rt_sigpending",
                                                  "rt_sigsuspend",
                                                  "rt_sigtimedwait",
                                                  "sigaltstack",
                                                  "pause",
                                                  "restart_syscall",
                                                  "exit",
                                                  "exit_group",
                                                  "arch_prctl"};

inline constexpr const char* kDescriptors[] = {"read", "write", "readv", "writev",     "close", "dup",
                                               "dup3", "fcntl", "fstat", "newfstatat", "lseek"};

inline constexpr const char* kEventLoop[] = {"epoll_create", "epoll_create1", "epoll_ctl",      "epoll_wait",      "epoll_pwait",
                                             "epoll_pwait2", "eventfd2",      "timerfd_create", "timerfd_settime", "timerfd_gettime",
                                             "poll",         "ppoll",         "select",         "pselect6"};

// On sockets that are there; which may be made is for each filter to say.
inline constexpr const char* kConnections[] = {"accept",   "accept4", "listen",  "getsockname", "getpeername", "getsockopt", "setsockopt",
                                               "shutdown", "sendto",  "sendmsg", "sendmmsg",    "recvfrom",    "recvmsg",    "recvmmsg"};

// What is in a file that is open.
inline constexpr const char* kContents[] = {"pread64",         "pwrite64",  "preadv",          "pwritev",  "preadv2",
                                            "pwritev2",        "fallocate", "ftruncate",       "fsync",    "fdatasync",
                                            "sync_file_range", "fadvise64", "copy_file_range", "sendfile", "fstatfs"};

// Opening what a path names. Which paths there are is for the root and for Landlock to say.
inline constexpr const char* kOpening[] = {"open",  "openat", "openat2",  "access",     "faccessat",  "faccessat2", "stat", "lstat",
                                           "statx", "statfs", "readlink", "readlinkat", "getdents64", "getcwd",     "umask"};

// Changing what stands in folders.
inline constexpr const char* kNames[] = {
    "rename", "renameat", "renameat2", "link",     "linkat",    "symlink",   "symlinkat", "unlink",    "unlinkat",   "mkdir",     "mkdirat",
    "rmdir",  "chmod",    "fchmod",    "fchmodat", "fchmodat2", "chown",     "fchown",    "lchown",    "fchownat",   "utimensat", "utimes",
    "utime",  "truncate", "flock",     "syncfs",   "getxattr",  "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr"};

// Starting programs, waiting for them, ending them. clone stands in filter.h.
inline constexpr const char* kPrograms[] = {"fork",   "vfork",   "execve",  "wait4",  "waitid", "kill",  "pidfd_open", "pidfd_send_signal",
                                            "setsid", "setpgid", "getpgid", "getsid", "pipe",   "pipe2", "dup2",       "close_range",
                                            "chdir",  "fchdir"};

#ifdef SPACE_SANITIZED
// LeakSanitizer looks at its own threads as a debugger would.
inline constexpr const char* kOfSanitizers[] = {"ptrace", "personality", "wait4", "clone"};
#else
inline constexpr std::array<const char*, 0> kOfSanitizers{};
#endif

// What no healthy process of ours calls, under any library: whoever does has taken it over.
inline constexpr const char* kAttacks[] = {
    // namespaces, mounts, roots
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr",
    // other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd", "move_pages",
    "migrate_pages",
    // parts of the kernel that nothing here works with
    "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd", "fanotify_init", "fanotify_mark", "open_by_handle_at",
    "lookup_dcookie", "quotactl", "quotactl_fd", "acct", "vmsplice", "modify_ldt", "memfd_secret", "execveat",
    // the machine
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "syslog",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm", "vhangup", "sethostname", "setdomainname", "nfsservctl",
    "mknod", "mknodat"};

}  // namespace space::confine
