#include "agent/cgroup.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include "base/file.h"
#include "wire/agent_protocol.h"

namespace space::agent {
namespace {

constexpr std::chrono::milliseconds kTry{500}, kLetGo{50};

Result<> write_freeze(const Fd& folder, std::string_view value) {
  const Fd file(::openat(folder.get(), "cgroup.freeze", O_WRONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, "open cgroup.freeze");
  return write_all(file, value);
}

bool says_frozen(int events) {
  char text[256];
  const ssize_t n = ::pread(events, text, sizeof text, 0);
  return n > 0 && std::string_view(text, static_cast<std::size_t>(n)).find("frozen 1") != std::string_view::npos;
}

}  // namespace

Result<> UserGroup::open(const std::string& folder) {
  folder_ = Fd(::open(folder.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC));
  if (!folder_) return fail_errno(errno, folder);
  return {};
}

Task<> UserGroup::freeze() {
  frozen_ = true;
  const std::uint64_t turn = ++turn_;
  if (!folder_) {
    for (const pid_t group : groups_()) ::kill(-group, SIGSTOP);
    co_return Result<>{};
  }
  CO_TRY_VOID(write_freeze(folder_, "1"));
  const int fd = ::openat(folder_.get(), "cgroup.events", O_RDONLY | O_CLOEXEC);
  if (fd < 0) co_return fail_errno(errno, "open cgroup.events");
  asio::posix::stream_descriptor events(executor_, fd);
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + wire::kFreezeLimit;
  for (auto again = Clock::now() + kTry; !says_frozen(fd);) {
    const auto now = Clock::now();
    if (now >= until) co_return fail(ErrorKind::unavailable, "freeze_failed", "the processes did not stand still within 5 s");
    if (now < again) {
      // kernfs notifies a change since the last reading by POLLPRI.
      using namespace asio::experimental::awaitable_operators;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(again, until) - now);
      co_await (events.async_wait(asio::posix::stream_descriptor::wait_error, asio::as_tuple(asio::use_awaitable)) || sleep_for(left));
    } else {
      // Who waits in the kernel for a FUSE daemon of this very group stands still only once that has answered, and it froze first.
      CO_TRY_VOID(write_freeze(folder_, "0"));
      co_await sleep_for(kLetGo);
      if (turn == turn_) CO_TRY_VOID(write_freeze(folder_, "1"));
      again = Clock::now() + kTry;
    }
    // An init that came meanwhile must not find them frozen anew.
    if (turn != turn_) co_return fail(ErrorKind::unavailable, "freeze_overtaken", "another request thawed the processes, or freezes them");
  }
  co_return Result<>{};
}

Result<> UserGroup::thaw() {
  frozen_ = false;
  ++turn_;
  if (folder_) return write_freeze(folder_, "0");
  for (const pid_t group : groups_()) ::kill(-group, SIGCONT);
  return {};
}

}  // namespace space::agent
