#include "agent/spawn.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace space::agent {
namespace {

constexpr std::size_t kMostCandidates = 64;
constexpr rlim_t kSoftFiles = 1024, kHardFiles = 524'288;  // what a login on a common distribution gives

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// All that the child needs, made before the fork: afterwards nothing may allocate or lock, since another thread of the agent may
// have held a lock at that moment.
struct Prepared {
  const SpawnPlan& plan;
  std::vector<char*> argv, env, candidates, shell_argv;
  int status;
  bool switch_user;
};

[[noreturn]] void give_up(const Prepared& p, StartFailure::Stage stage, int error) {
  const StartFailure failure{stage, error};
  (void)!::write(p.status, &failure, sizeof failure);
  ::_exit(127);
}

void be_an_ordinary_process(const Prepared& p) {
  ::setsid();
  if (p.plan.terminal && ::ioctl(p.plan.standard[0], TIOCSCTTY, 0) != 0) give_up(p, StartFailure::setup, errno);
  // Handlers do not exist in the agent, ignored signals do, and they would stay ignored.
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &usual, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::umask(022);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_max = std::min(files.rlim_max, kHardFiles);
    files.rlim_cur = std::min(files.rlim_max, kSoftFiles);
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  // The agent is the last that the kernel may kill for want of memory; its children are ordinary again.
  if (const int oom = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); oom >= 0) {
    (void)!::write(oom, "0", 1);
    ::close(oom);
  }
}

void take_descriptors(const Prepared& p) {
  // The agent's own 0, 1 and 2 are always open, so none of the three lies below 3 and no dup2 overwrites a later source.
  for (int i = 0; i < 3; ++i)
    if (::dup2(p.plan.standard[i], i) < 0) give_up(p, StartFailure::setup, errno);
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {  // before Linux 5.11: all of the agent's are close-on-exec anyway
  }
}

void take_identity(const Prepared& p) {
  if (!p.switch_user) return;
  const Identity& who = p.plan.identity;
  if (::syscall(SYS_setgroups, who.groups.size(), who.groups.data()) != 0 || ::syscall(SYS_setresgid, who.gid, who.gid, who.gid) != 0 ||
      ::syscall(SYS_setresuid, who.uid, who.uid, who.uid) != 0)
    give_up(p, StartFailure::identity, errno);
}

[[noreturn]] void run_program(Prepared& p) {
  int error = ENOENT;
  for (char* path : p.candidates) {
    if (!path) break;
    ::execve(path, p.argv.data(), p.env.data());
    if (errno == ENOEXEC) {  // a script without a first line that names its interpreter
      p.shell_argv[1] = path;
      ::execve("/bin/sh", p.shell_argv.data(), p.env.data());
    }
    if (errno == EACCES)
      error = EACCES;
    else if (errno != ENOENT && errno != ENOTDIR)
      give_up(p, StartFailure::program, errno);
  }
  give_up(p, StartFailure::program, error);
}

[[noreturn]] void child(Prepared& p) {
  be_an_ordinary_process(p);
  take_descriptors(p);
  take_identity(p);
  if (::chdir(p.plan.cwd.c_str()) != 0 && (!p.plan.cwd_optional || ::chdir("/") != 0)) give_up(p, StartFailure::directory, errno);
  run_program(p);
}

long clone_process(int cgroup) {
  clone_args args{};
  args.exit_signal = SIGCHLD;
  if (cgroup >= 0) {
    args.flags = CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(cgroup);
  }
  return ::syscall(SYS_clone3, &args, sizeof args);
}

}  // namespace

Result<Spawned> spawn_program(const SpawnPlan& plan) {
  int pair[2];
  if (::pipe2(pair, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd status(pair[0]), status_write(pair[1]);
  Prepared prepared{plan, pointers(plan.argv), pointers(plan.env), pointers(plan.candidates), {}, status_write.get(), ::geteuid() == 0};
  prepared.shell_argv = prepared.argv;
  prepared.shell_argv.insert(prepared.shell_argv.begin() + 1, nullptr);
  if (!prepared.switch_user && plan.identity.uid != ::geteuid())
    return fail(ErrorKind::permission_denied, "cannot_switch_user",
                fmt::format("the agent cannot start processes of uid {}", plan.identity.uid));
  const long pid = clone_process(plan.cgroup);
  if (pid == 0) child(prepared);
  if (pid < 0) return fail_errno(errno, "start a process");
  return Spawned{static_cast<pid_t>(pid), std::move(status)};
}

Error start_error(const StartFailure& failure, const std::string& program, const std::string& cwd) {
  const std::string name = program.substr(0, 200);
  switch (failure.stage) {
    case StartFailure::directory:
      if (failure.error == ENOENT || failure.error == ENOTDIR)
        return {ErrorKind::invalid_argument, "no_such_directory", fmt::format("the working directory {} is not there", cwd.substr(0, 200)),
                "make it first or name another cwd"};
      return fail_errno(failure.error, fmt::format("enter {}", cwd.substr(0, 200))).value();
    case StartFailure::program:
      if (failure.error == ENOENT || failure.error == ENOTDIR)
        return {ErrorKind::invalid_argument, "command_not_found", fmt::format("there is no program {}", name),
                "check the name, the PATH and the interpreter in its first line"};
      if (failure.error == EACCES)
        return {ErrorKind::invalid_argument, "not_executable", fmt::format("{} may not be executed by this user", name),
                "check its mode and its owner"};
      if (failure.error == E2BIG)
        return {ErrorKind::too_large, "arguments_too_long", "arguments and environment are longer than the kernel takes",
                "pass them by a file or by stdin"};
      return fail_errno(failure.error, fmt::format("execute {}", name)).value();
    case StartFailure::setup:
    case StartFailure::identity:
      break;
  }
  return fail_errno(failure.error, "prepare the process").value();
}

std::vector<std::string> program_candidates(const std::string& program, std::string_view path) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> out;
  for (std::string_view rest = path; out.size() < kMostCandidates;) {
    const std::size_t at = rest.find(':');
    const std::string_view folder = rest.substr(0, at);
    out.push_back(folder.empty() ? fmt::format("./{}", program) : fmt::format("{}/{}", folder, program));  // an empty part is the cwd
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at + 1);
  }
  return out;
}

}  // namespace space::agent
