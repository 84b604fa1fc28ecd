#include "template/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "base/fd.h"

namespace space::tmpl {
namespace {

constexpr std::size_t kLineBytes = 1000;
constexpr std::size_t kKeptLines = 12;

using SteadyClock = std::chrono::steady_clock;

// Calls `take` for each line until the other end of the pipe is closed. False when `end` comes first.
Result<bool> read_lines(const Fd& pipe, SteadyClock::time_point end, const std::function<void(const std::string&)>& take) {
  std::string line;
  char buffer[4096];
  for (;;) {
    pollfd waiting{pipe.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now()).count();
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && left <= 0) return false;
    if (ready == 0) continue;
    const auto n = ::read(pipe.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read from a program");
    for (const char c : std::string_view(buffer, static_cast<std::size_t>(n))) {
      if (c == '\n' || c == '\r') {
        if (!line.empty()) take(line);
        line.clear();
      } else if (line.size() < kLineBytes) {
        line += c;
      }
    }
    if (n == 0) {
      if (!line.empty()) take(line);
      return true;
    }
  }
}

// A person's PATH often lacks sbin, where mke2fs is.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::string folders = std::string(path ? path : "/usr/bin:/bin") + ":/usr/sbin:/sbin";
  for (std::size_t at = 0; at <= folders.size();) {
    const auto colon = std::min(folders.find(':', at), folders.size());
    const auto file = folders.substr(at, colon - at) + "/" + name;
    if (colon > at && access(file.c_str(), X_OK) == 0) return file;
    at = colon + 1;
  }
  return name;
}

bool same_name(std::string_view a, std::string_view b) { return a.substr(0, a.find('=')) == b.substr(0, b.find('=')); }

}  // namespace

Result<> run_command(const Command& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd reader(ends[0]), writer(ends[1]);

  std::vector<char*> argv, environment;
  for (const auto& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const auto& variable : command.environment) environment.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable; ++variable)
    if (std::none_of(command.environment.begin(), command.environment.end(), [&](const auto& ours) { return same_name(ours, *variable); }))
      environment.push_back(*variable);
  environment.push_back(nullptr);

  const auto program = find_program(command.argv[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(ErrorKind::unavailable, "template_script", fmt::format("{} cannot be started: {}", command.argv[0], std::strerror(error)),
                "install what scripts/packages.txt names, with scripts/setup");
  writer.reset();

  std::deque<std::string> last;
  const auto end = command.time_limit.count() > 0 ? SteadyClock::now() + command.time_limit : SteadyClock::time_point::max();
  auto read = read_lines(reader, end, [&](const std::string& line) {
    if (command.on_line) command.on_line(line);
    last.push_back(line);
    if (last.size() > kKeptLines) last.pop_front();
  });
  if (!read || !*read) ::kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  TRY(const bool in_time, std::move(read));
  if (!in_time)
    return fail(ErrorKind::deadline_exceeded, "template_script", fmt::format("{} did not end in time", command.argv[0]),
                "look at the load of this machine and try again");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};

  std::string text;
  for (const auto& line : last) text += "\n  " + line;
  const auto how = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                       : fmt::format("failed with status {}", WEXITSTATUS(status));
  return fail(ErrorKind::unavailable, "template_script", fmt::format("{} {}; it said:{}", command.argv[0], how, text),
              "correct what its last lines name and run the build again; what was downloaded is kept");
}

}  // namespace space::tmpl
