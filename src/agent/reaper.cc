#include "agent/reaper.h"

#include <cerrno>
#include <pthread.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

namespace space::agent {

Reaper::Reaper(asio::any_io_executor executor) : signals_(std::move(executor)) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Result<> Reaper::start() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const int fd = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return fail_errno(errno, "signalfd");
  signals_.assign(fd);
  wait_for_signal();
  collect();  // what ended before
  return {};
}

void Reaper::track(pid_t pid, std::function<void(const siginfo_t&)> ended) { tracked_.emplace(pid, std::move(ended)); }

void Reaper::wait_for_signal() {
  signals_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    // One signal may stand for many children; what it says is not used. Several of one kind are never queued.
    signalfd_siginfo info;
    (void)!::read(signals_.native_handle(), &info, sizeof info);
    collect();
    wait_for_signal();
  });
}

void Reaper::collect() {
  for (;;) {
    siginfo_t info{};
    // WNOWAIT leaves the child as it is until its owner has been told, so that its pid cannot be another's by then.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid == 0) return;
    if (const auto found = tracked_.find(info.si_pid); found != tracked_.end()) {
      const auto ended = std::move(found->second);
      tracked_.erase(found);
      ended(info);
    }
    siginfo_t ignored{};
    ::waitid(P_PID, static_cast<id_t>(info.si_pid), &ignored, WEXITED | WNOHANG | __WALL);
  }
}

}  // namespace space::agent
