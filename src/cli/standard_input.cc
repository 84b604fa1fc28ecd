#include "cli/standard_input.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>

namespace space::cli {
namespace {

constexpr std::size_t kRead = 64 << 10;  // what a pipe holds
constexpr std::size_t kSmallPiece = kRead;
constexpr std::size_t kLargePiece = 1 << 20;
constexpr std::chrono::milliseconds kQuick{250};  // an answer within this: the program keeps up

// The program closed its input or ended: like a pipe without a reader, whose writer has nothing to say.
bool wants_no_more(const Error& error) {
  return error.code == "stdin_closed" || error.kind == ErrorKind::gone || error.kind == ErrorKind::not_found;
}

}  // namespace

bool stdin_is_piped() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode);
}

StandardInput::StandardInput(Context& context, std::string target, int fd)
    : context_(context),
      target_(std::move(target)),
      fd_(fd),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      change_(context.executor),
      most_(kSmallPiece) {}

void StandardInput::start() {
  const auto self = shared_from_this();
  spawn(context_.executor, [](std::shared_ptr<StandardInput> input) -> asio::awaitable<void> { co_await input->gather(); }(self));
  spawn(context_.executor, [](std::shared_ptr<StandardInput> input) -> asio::awaitable<void> { co_await input->send(); }(self));
}

void StandardInput::stop() {
  over_ = true;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  change_.notify_all();
}

Result<std::string> StandardInput::read() const {
  pollfd ready[] = {{fd_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  std::string piece(kRead, '\0');
  for (;;) {
    if (::poll(ready, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "wait for standard input");
    }
    if (ready[1].revents != 0) return std::string();
    const ssize_t count = ::read(fd_, piece.data(), piece.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;  // somebody else who has it open took what was there
    if (count < 0) return fail_errno(errno, "read standard input");
    piece.resize(static_cast<std::size_t>(count));
    return piece;
  }
}

void StandardInput::tell(const Error& error) const {
  context_.console.note(fmt::format("space: standard input was cut off: {} ({})", error.message, error.code));
}

asio::awaitable<void> StandardInput::gather() {
  const auto work = [this] { return read(); };
  while (!ended_) {
    while (waiting_.size() >= most_ && !over_) co_await change_.wait();
    if (over_) co_return;
    auto piece = co_await context_.pool.run(work);
    if (over_) co_return;
    if (!piece) tell(piece.error());
    ended_ = !piece || piece->empty();
    if (piece) waiting_ += *piece;
    change_.notify_all();
  }
}

asio::awaitable<void> StandardInput::send() {
  for (;;) {
    while (waiting_.empty() && !ended_ && !over_) co_await change_.wait();
    if (over_) co_return;
    std::string bytes = std::exchange(waiting_, {});
    const bool last = ended_;
    change_.notify_all();
    std::string target = target_ + (last ? "?close=1" : "");
    const auto begun = std::chrono::steady_clock::now();
    auto sent = co_await context_.api.send_bytes("POST", std::move(target), std::move(bytes));
    if (over_) co_return;
    if (!sent && !wants_no_more(sent.error())) tell(sent.error());
    if (!sent || last) co_return stop();
    const bool quick = std::chrono::steady_clock::now() - begun < kQuick;
    most_ = quick ? std::min(2 * most_, kLargePiece) : kSmallPiece;
    change_.notify_all();
  }
}

}  // namespace space::cli
