// The input side of a process: turns, writing with back-pressure, end of file.
#include <cerrno>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "agent/process.h"

namespace space::agent {
namespace {

constexpr auto kStartWait = std::chrono::seconds(30);

tl::unexpected<Error> stdin_closed() {
  return fail(ErrorKind::conflict, "stdin_closed", "the process does not read from stdin",
              "create it with \"stdin\": true; after close=1, or when the process closed it, nothing more can be sent");
}

}  // namespace

Task<Process::StdinTurn> Process::stdin_turn() {
  const auto until = std::chrono::steady_clock::now() + kStartWait;
  while (state_ == ProcessState::created || state_ == ProcessState::starting) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      co_return fail(ErrorKind::conflict, "process_not_started", "the process has not been started", "attach to it first");
    co_await started_.wait_for(left);
  }
  while (stdin_busy_) co_await stdin_free_.wait();
  if (state_ == ProcessState::exited)
    co_return fail(ErrorKind::gone, "process_exited", "the process has ended", "look at its session to see how");
  if (!stdin_.is_open()) co_return stdin_closed();
  stdin_busy_ = true;
  co_return StdinTurn(shared_from_this());
}

Process::StdinTurn::~StdinTurn() {
  if (!process_) return;
  process_->stdin_busy_ = false;
  process_->stdin_free_.notify_all();
}

Task<> Process::StdinTurn::write(std::span<const std::byte> bytes) {
  auto& out = process_->stdin_;
  while (!bytes.empty()) {
    if (!out.is_open()) co_return stdin_closed();
    const ssize_t n = ::write(out.native_handle(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      co_await out.async_wait(asio::posix::stream_descriptor::wait_write, asio::as_tuple(asio::use_awaitable));
    } else if (errno != EINTR) {
      boost::system::error_code ignored;
      out.close(ignored);
      co_return stdin_closed();
    }
  }
  co_return Result<>{};
}

Task<> Process::StdinTurn::close() {
  auto& out = process_->stdin_;
  if (!out.is_open()) co_return stdin_closed();
  if (process_->command_.terminal) {
    termios settings{};
    std::byte end{4};  // ^D
    if (::ioctl(out.native_handle(), TCGETS, &settings) == 0) end = static_cast<std::byte>(settings.c_cc[VEOF]);
    co_return co_await write(std::span(&end, 1));
  }
  boost::system::error_code ignored;
  out.close(ignored);
  co_return Result<>{};
}

}  // namespace space::agent
