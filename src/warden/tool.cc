#include "warden/tool.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

namespace space::warden {

Result<std::string> run_tool(const std::vector<std::string>& argv, uid_t uid) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  Fd reader(ends[0]), writer(ends[1]);
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) {
    char* const no_environment[] = {nullptr};
    const int null = ::open("/dev/null", O_RDWR);
    ::alarm(10);
    if (::dup2(null, 0) < 0 || ::dup2(writer.get(), 1) < 0 || ::dup2(null, 2) < 0 || ::setgroups(0, nullptr) != 0 ||
        ::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
      ::_exit(126);
    ::execve(pointers[0], pointers.data(), no_environment);
    ::_exit(127);
  }
  writer.reset();
  auto output = read_fd(reader, 256 << 10);
  reader.reset();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!output) return output;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(ErrorKind::unsupported, "tool_failed", fmt::format("{} ended with status {:#x}", argv[0], status),
                "it must run as an ordinary user");
  return output;
}

}  // namespace space::warden
