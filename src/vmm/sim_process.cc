#include "vmm/sim_process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

namespace space::vmm {
namespace {

// Only calls that are safe after a clone of a process with threads.
[[noreturn]] void child(char* const* argv, int go, int go_writer) {
  ::close(go_writer);
  char byte;
  if (::read(go, &byte, 1) != 1) ::_exit(127);  // the uid map is written now
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  ::syscall(SYS_close_range, 3, ~0U, 0);
  ::execv(argv[0], argv);
  ::_exit(127);
}

Result<> write_text(const std::string& path, const std::string& text) {
  TRY(const Fd fd, open_file(path, O_WRONLY));
  return write_all(fd, text);
}

}  // namespace

Result<SimProcess> start_in_namespaces(const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  int pidfd = -1;
  clone_args args{};
  args.flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWPID;
  args.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) child(words.data(), reader.get(), writer.get());
  if (pid < 0) {
    Error error = fail_errno(errno, "start a process in namespaces").value();
    error.next = "allow unprivileged user namespaces on this host";
    return fail(std::move(error));
  }
  SimProcess process{Fd(pidfd), static_cast<pid_t>(pid)};
  const std::string folder = fmt::format("/proc/{}/", pid);
  const auto mapped = [&]() -> Result<> {
    TRY_VOID(write_text(folder + "setgroups", "deny"));
    TRY_VOID(write_text(folder + "gid_map", fmt::format("{} {} 1\n", kSimId, gid)));
    TRY_VOID(write_text(folder + "uid_map", fmt::format("{} {} 1\n", kSimId, uid)));
    return write_all(writer, "g");
  }();
  if (!mapped) {
    kill_and_reap(process);
    return fail(mapped.error());
  }
  return process;
}

void kill_and_reap(const SimProcess& process) {
  (void)::syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0);
  // By number, which stays the child's until it is reaped: a copy of the pidfd is watched and has made it non-blocking.
  while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace space::vmm
