#include "agent/cgroup.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include "base/file.h"
#include "wire/agent_protocol.h"

namespace space::agent {
namespace {

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
  if (!folder_) {
    for (const pid_t group : groups_()) ::kill(-group, SIGSTOP);
    co_return Result<>{};
  }
  CO_TRY_VOID(write_freeze(folder_, "1"));
  const int fd = ::openat(folder_.get(), "cgroup.events", O_RDONLY | O_CLOEXEC);
  if (fd < 0) co_return fail_errno(errno, "open cgroup.events");
  asio::posix::stream_descriptor events(executor_, fd);
  const auto until = std::chrono::steady_clock::now() + wire::kFreezeLimit;
  while (!says_frozen(fd)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) co_return fail(ErrorKind::unavailable, "freeze_failed", "the processes did not stand still within 5 s");
    // kernfs notifies a change since the last reading by POLLPRI.
    using namespace asio::experimental::awaitable_operators;
    co_await (events.async_wait(asio::posix::stream_descriptor::wait_error, asio::as_tuple(asio::use_awaitable)) || sleep_for(left));
  }
  co_return Result<>{};
}

Result<> UserGroup::thaw() {
  frozen_ = false;
  if (folder_) return write_freeze(folder_, "0");
  for (const pid_t group : groups_()) ::kill(-group, SIGCONT);
  return {};
}

}  // namespace space::agent
