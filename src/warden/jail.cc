#include "warden/jail.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/unix_socket.h"
#include "confine/landlock.h"
#include "warden/userfault.h"

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67  // Linux 6.4
#endif

namespace space::warden {
namespace {

constexpr std::array kSteps = {
    "start",           "join its cgroup", "take a private mount table", "mount its root", "mount /proc",    "make /dev",
    "change its root", "set a limit",     "arrange its descriptors",    "give up rights", "enter Landlock", "load the filter",
    "run the program"};
enum Step : std::int32_t { kStart, kCgroup, kPrivate, kRoot, kProc, kDev, kPivot, kLimit, kDescriptors, kRights, kLandlock, kFilter, kRun };

struct Status {
  std::int32_t step, error;
};

constexpr int kHigh = 128;  // above every number that a descriptor may get in the VMM

// Everything the child needs, laid out by the parent: after the clone of a process with threads nothing may allocate.
struct Plan {
  const JailSpec* spec;
  const char* root;
  std::vector<char*> argv;
  std::array<int, kMaxPassedFds> fds{};
  std::size_t fd_count = 0;
  std::array<int, 8> tasks{};
  std::size_t task_count = 0;
  int log, go, go_writer, status;
  int userfault_socket = -1, userfault_device = -1;
};

[[noreturn]] void give_up(int status, Step step) {
  const Status report{step, errno};
  (void)!::write(status, &report, sizeof report);
  ::_exit(127);
}

#define MUST(step, call) \
  if ((call) < 0) give_up(plan.status, step)

void make_device(const Plan& plan, const char* path, mode_t mode, unsigned major_number, unsigned minor_number) {
  MUST(kDev, ::mknod(path, S_IFCHR | mode, makedev(major_number, minor_number)));
}

void enter_root(const Plan& plan) {
  MUST(kPrivate, ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  MUST(kRoot, ::mount(plan.root, plan.root, nullptr, MS_BIND, nullptr));
  MUST(kRoot, ::mount(nullptr, plan.root, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr));
  MUST(kRoot, ::chdir(plan.root));
  // Only itself, and nothing but processes: no /proc/sys, no /proc/kallsyms.
  constexpr unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (::mount("proc", "proc", "proc", flags, "hidepid=invisible,subset=pid") != 0)
    MUST(kProc, ::mount("proc", "proc", "proc", flags, "hidepid=2"));
  MUST(kDev, ::mount("dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=16k,nr_inodes=8,mode=0755"));
  make_device(plan, "dev/null", 0666, 1, 3);
  make_device(plan, "dev/urandom", 0444, 1, 9);
  if (plan.spec->kvm) make_device(plan, "dev/kvm", 0666, 10, 232);
  MUST(kDev, ::mount(nullptr, "dev", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, nullptr));
  // pivot_root(2), "pivot_root(".", ".")": the old root ends up over the new one and is taken away.
  MUST(kPivot, ::syscall(SYS_pivot_root, ".", "."));
  MUST(kPivot, ::umount2(".", MNT_DETACH));
  MUST(kPivot, ::chdir("/"));
}

void limit(const Plan& plan, __rlimit_resource what, rlim_t value) {
  rlimit now{};
  MUST(kLimit, ::getrlimit(what, &now));
  const rlim_t hard = std::min(value, now.rlim_max);  // raising would need CAP_SYS_RESOURCE, and is never meant here
  const rlimit wanted{hard, hard};
  MUST(kLimit, ::setrlimit(what, &wanted));
}

void set_limits(const Plan& plan) {
  limit(plan, RLIMIT_CORE, 0);
  limit(plan, RLIMIT_NOFILE, 1024);
  limit(plan, RLIMIT_FSIZE, plan.spec->file_bytes);
  limit(plan, RLIMIT_NPROC, plan.spec->tasks);
  limit(plan, RLIMIT_MEMLOCK, 0);
  limit(plan, RLIMIT_MSGQUEUE, 0);
  limit(plan, RLIMIT_RTPRIO, 0);
  limit(plan, RLIMIT_NICE, 0);
  limit(plan, RLIMIT_SIGPENDING, 256);
}

// In two moves, since a descriptor's number may be the target of another: first all up, then each down to its place.
void arrange_descriptors(Plan& plan) {
  auto lift = [&](int& fd) {
    fd = ::fcntl(fd, F_DUPFD_CLOEXEC, kHigh);
    MUST(kDescriptors, fd);
  };
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  MUST(kDescriptors, null);
  lift(plan.status);
  lift(plan.log);
  for (std::size_t i = 0; i < plan.fd_count; ++i) lift(plan.fds[i]);
  if (plan.userfault_socket >= 0) {
    lift(plan.userfault_socket);
    lift(plan.userfault_device);
  }
  MUST(kDescriptors, ::dup2(null, 0));
  MUST(kDescriptors, ::dup2(plan.log, 1));
  MUST(kDescriptors, ::dup2(plan.log, 2));
  int next = 3;
  for (std::size_t i = 0; i < plan.fd_count; ++i) MUST(kDescriptors, ::dup2(plan.fds[i], next++));
  MUST(kDescriptors, ::syscall(SYS_close_range, next, ~0U, CLOSE_RANGE_CLOEXEC));
  if (plan.userfault_socket >= 0) {
    MUST(kDescriptors, ::dup2(plan.userfault_socket, SPACE_USERFAULT_SOCKET));
    MUST(kDescriptors, ::dup2(plan.userfault_device, SPACE_USERFAULT_DEVICE));
  }
}

void drop_rights(const Plan& plan) {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    MUST(kRights, ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0));
  (void)::prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0);  // not in every kernel, and off where it is not
  // The raw calls: those of libc would look for the parent's other threads.
  const uid_t uid = plan.spec->uid;
  MUST(kRights, ::syscall(SYS_setgroups, 0, nullptr));
  MUST(kRights, ::syscall(SYS_setresgid, uid, uid, uid));
  MUST(kRights, ::syscall(SYS_setresuid, uid, uid, uid));  // takes every capability with it
  MUST(kRights, ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  MUST(kRights, ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));  // after exec the program's mode (0711) keeps it so
}

// Branches that another process trained do not steer it, nor its own others (Documentation/admin-guide/hw-vuln/spectre.rst). Not every
// machine needs it, nor lets a process choose.
void harden_speculation() { (void)::prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH, PR_SPEC_FORCE_DISABLE, 0, 0); }

// Its root to read and run, its descriptors to be opened again as they are open, and no more: no TAP or device a second time, nothing for
// writing that came for reading.
void enter_landlock(const Plan& plan) {
  const int version = plan.spec->landlock, landlock = confine::make_landlock(version, confine::Tcp::none);
  MUST(kLandlock, landlock);
  const auto allow = [&](const char* path, std::uint64_t rights) {
    const int fd = ::open(path, O_PATH | O_CLOEXEC);
    MUST(kLandlock, fd);
    MUST(kLandlock, confine::allow_beneath(landlock, version, fd, rights));
  };
  allow("/", confine::kRun);
  allow("/dev/null", confine::kReadWrite);
  if (plan.spec->kvm) allow("/dev/kvm", confine::kReadWrite | confine::kDevices);
  for (int fd = 3; fd < 3 + static_cast<int>(plan.fd_count); ++fd) {
    struct stat st {};
    MUST(kLandlock, ::fstat(fd, &st));
    if (!S_ISREG(st.st_mode)) continue;
    const int mode = ::fcntl(fd, F_GETFL) & O_ACCMODE;
    const std::uint64_t rights = mode == O_RDONLY   ? confine::kReadFile
                                 : mode == O_WRONLY ? confine::kWriteFile | confine::kTruncate
                                                    : confine::kReadWrite;
    // Landlock knows no rules for a memfd, and lets it be opened.
    if (confine::allow_beneath(landlock, version, fd, rights) != 0 && errno != EBADFD) give_up(plan.status, kLandlock);
  }
  MUST(kLandlock, confine::keep_landlock(landlock));
}

void reset_signals() {
  struct sigaction action {};
  for (int number = 1; number < 65; ++number) {
    // A write over RLIMIT_FSIZE is to be an error for the guest's disk, not the end of the VMM.
    action.sa_handler = number == SIGXFSZ ? SIG_IGN : SIG_DFL;
    (void)::sigaction(number, &action, nullptr);
  }
  sigset_t none;
  ::sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void child(Plan& plan) {
  ::close(plan.go_writer);  // else it would never see that its maker is gone
  ::umask(0);
  reset_signals();
  (void)::setsid();
  for (std::size_t i = 0; i < plan.task_count; ++i) MUST(kCgroup, ::write(plan.tasks[i], "0", 1));
  MUST(kCgroup, ::unshare(CLONE_NEWCGROUP));
  // When memory runs out on the host, VMMs end before the roles.
  if (const int oom = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); oom >= 0) (void)!::write(oom, "500", 3);
  (void)::syscall(SYS_sethostname, "vmm", 3);
  enter_root(plan);
  set_limits(plan);
  char go;
  if (::read(plan.go, &go, 1) != 1) ::_exit(0);
  arrange_descriptors(plan);
  drop_rights(plan);
  if (plan.spec->landlock != 0) enter_landlock(plan);
  const sock_fprog filter{static_cast<unsigned short>(plan.spec->filter.size()), const_cast<sock_filter*>(plan.spec->filter.data())};
  if (filter.len > 0) {
    harden_speculation();
    MUST(kFilter, ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
  }
  char* const no_environment[] = {nullptr};
  ::execve(kVmmProgram, plan.argv.data(), no_environment);
  give_up(plan.status, kRun);
}
#undef MUST

}  // namespace

Result<JailedProcess> JailedProcess::launch(const JailSpec& spec) {
  int go[2], status[2];
  if (::pipe2(go, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  Fd go_reader(go[0]), go_writer(go[1]);
  if (::pipe2(status, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  Fd status_reader(status[0]), status_writer(status[1]);

  Plan plan{};
  plan.spec = &spec;
  plan.root = spec.root.c_str();
  plan.argv.push_back(const_cast<char*>("vmm"));
  for (const std::string& argument : spec.argv) plan.argv.push_back(const_cast<char*>(argument.c_str()));
  plan.argv.push_back(nullptr);
  if (spec.fds.size() > plan.fds.size() || spec.cgroup->tasks.size() > plan.tasks.size())
    return fail(ErrorKind::internal, "too_many_descriptors", "more descriptors than a jail takes");
  for (const Fd& fd : spec.fds) plan.fds[plan.fd_count++] = fd.get();
  for (const Fd& fd : spec.cgroup->tasks) plan.tasks[plan.task_count++] = fd.get();
  plan.log = spec.log->get();
  plan.go = go[0];
  plan.go_writer = go[1];
  if (spec.userfault_socket && spec.userfault_device) {
    plan.userfault_socket = spec.userfault_socket->get();
    plan.userfault_device = spec.userfault_device->get();
  }
  plan.status = status[1];

  int pidfd = -1;
  clone_args args{};
  args.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;
  args.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  if (spec.cgroup->into) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(spec.cgroup->into.get());
  }
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) child(plan);
  if (pid < 0) return fail_errno(errno, "clone a VMM");
  JailedProcess process;
  process.pid_ = static_cast<pid_t>(pid);
  process.pidfd_ = Fd(pidfd);
  process.go_ = std::move(go_writer);
  process.status_ = std::move(status_reader);
  return process;
}

Result<> JailedProcess::release() {
  const bool told = ::write(go_.get(), "g", 1) == 1;  // else it has ended, and its report says why
  go_.reset();
  pollfd waiting{status_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, 10'000) != 1) return fail(ErrorKind::deadline_exceeded, "jail_failed", "the VMM's jail was not ready after 10 s");
  Status report{};
  const ssize_t n = ::read(status_.get(), &report, sizeof report);
  if (n == 0 && told) return {};  // closed by execve
  const auto step = n == sizeof report && report.step >= 0 && static_cast<std::size_t>(report.step) < kSteps.size() ? report.step : kStart;
  auto failure = fail_errno(report.error, fmt::format("the VMM could not {}", kSteps[static_cast<std::size_t>(step)]));
  failure.value().code = "jail_failed";
  return failure;
}

Result<std::uint64_t> process_start_time(pid_t pid) {
  TRY(const std::string stat, read_file(fmt::format("/proc/{}/stat", pid), 4096));
  // The second field is the name in parentheses and may hold anything.
  std::size_t at = stat.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return fail(ErrorKind::internal, "bad_proc_stat", fmt::format("/proc/{}/stat has too few fields", pid));
  return std::strtoull(stat.c_str() + at + 1, nullptr, 10);
}

Result<Fd> open_process(pid_t pid, std::uint64_t start_time) {
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto gone = [pid] { return fail(ErrorKind::not_found, "vmm_ended", fmt::format("process {} has ended", pid)); };
  if (!pidfd) return gone();
  // Read after the pidfd is held: the pid cannot go to another process between the two.
  const auto started = process_start_time(pid);
  if (!started || *started != start_time || wait_for_end(pidfd, std::chrono::milliseconds(0))) return gone();
  return pidfd;
}

Result<> kill_process(const Fd& pidfd) {
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH) return fail_errno(errno, "kill a VMM");
  return {};
}

bool wait_for_end(const Fd& pidfd, std::chrono::milliseconds time) {
  pollfd waiting{pidfd.get(), POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(time.count())) == 1;
}

}  // namespace space::warden
