#include "agent/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

namespace space::agent {
namespace {

constexpr auto kDrain = std::chrono::milliseconds(200);
constexpr auto kLookAgain = std::chrono::seconds(1);  // at readers that hold the process up
constexpr std::size_t kBeyond = 64 << 10;             // of each pipe: what one of the usual size holds
constexpr int kReadsInARow = 4;                       // then the loop's other work has its turn
constexpr gid_t kTerminalGroup = 5;                   // "tty", as every distribution numbers it

Result<> adopt(asio::posix::stream_descriptor& stream, Fd fd) {
  boost::system::error_code error;
  stream.assign(fd.get(), error);
  if (error) return fail_errno(error.value(), "watch a descriptor");
  (void)fd.release();
  stream.non_blocking(true, error);
  if (error) return fail_errno(error.value(), "watch a descriptor");
  return {};
}

// A pipe whose end on this side, non-blocking, goes to `ours`; the child's end is given back. The user owns it, so that it can be
// opened again through /dev/stdout and its like.
Result<Fd> make_pipe(asio::posix::stream_descriptor& ours, bool child_reads, const Identity& user) {
  int pair[2];
  if (::pipe2(pair, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd own(pair[child_reads ? 1 : 0]), childs(pair[child_reads ? 0 : 1]);
  if (user.uid != 0 && ::fchown(childs.get(), user.uid, user.gid) != 0) return fail_errno(errno, "chown of a pipe");
  TRY_VOID(adopt(ours, std::move(own)));
  return childs;
}

winsize window_size(TerminalSize size) {
  winsize out{};
  out.ws_row = size.rows;
  out.ws_col = size.cols;
  return out;
}

}  // namespace

Process::Process(asio::any_io_executor executor, Reaper& reaper, const WindowLimits& limits, std::uint32_t number, Command command,
                 int cgroup, std::function<void()> ended)
    : executor_(executor),
      reaper_(reaper),
      number_(number),
      command_(std::move(command)),
      cgroup_(cgroup),
      ended_(std::move(ended)),
      room_(executor),
      progress_(executor),
      started_(executor),
      stdin_free_(executor),
      window_(limits, room_),
      out_(executor, command_.terminal ? wire::FrameType::pty_bytes : wire::FrameType::stdout_bytes),
      err_(executor, wire::FrameType::stderr_bytes),
      stdin_(executor),
      limit_(executor),
      look_(executor) {}

Task<> Process::start() {
  if (state_ == ProcessState::created) {
    state_ = ProcessState::starting;
    auto status = launch();
    if (status)
      spawn(executor_, run(shared_from_this(), std::move(*status)));
    else
      finish_failed(std::move(status).error());
  }
  while (state_ == ProcessState::starting) co_await started_.wait();
  if (start_error_) co_return fail(*start_error_);
  co_return Result<>{};
}

Result<> Process::make_pipes(Fd (&child)[3]) {
  if (command_.stdin_open) {
    TRY(child[0], make_pipe(stdin_, true, command_.identity));
  } else {
    TRY(child[0], open_file("/dev/null", O_RDONLY));
  }
  TRY(child[1], make_pipe(out_.stream, false, command_.identity));
  TRY(child[2], make_pipe(err_.stream, false, command_.identity));
  out_.open = err_.open = true;
  return {};
}

Result<> Process::make_terminal(Fd (&child)[3]) {
  Fd master(::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master) return fail_errno(errno, "open a terminal");
  const int unlock = 0;
  if (::ioctl(master.get(), TIOCSPTLCK, &unlock) != 0) return fail_errno(errno, "unlock the terminal");
  child[0] = Fd(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!child[0]) return fail_errno(errno, "open the terminal's other end");
  const winsize size = window_size(*command_.terminal);
  if (::ioctl(master.get(), TIOCSWINSZ, &size) != 0) return fail_errno(errno, "set the terminal's size");
  if (::geteuid() == 0) {
    if (::fchown(child[0].get(), command_.identity.uid, kTerminalGroup) != 0 || ::fchmod(child[0].get(), 0620) != 0)
      return fail_errno(errno, "give the terminal to the user");
  }
  TRY(child[1], child[0].duplicate());
  TRY(child[2], child[0].duplicate());
  TRY(Fd writer, master.duplicate());  // a second descriptor, because input and output are waited for apart
  TRY_VOID(adopt(stdin_, std::move(writer)));
  TRY_VOID(adopt(out_.stream, std::move(master)));
  out_.open = true;
  return {};
}

Result<Fd> Process::launch() {
  Fd child[3];
  if (command_.terminal) {
    TRY_VOID(make_terminal(child));
  } else {
    TRY_VOID(make_pipes(child));
  }
  SpawnPlan plan;
  plan.candidates = program_candidates(command_.argv[0], environment_value(command_.env, "PATH"));
  plan.argv = command_.argv;
  plan.env = std::move(command_.env);
  plan.cwd = command_.cwd;
  plan.cwd_optional = command_.cwd_optional;
  plan.identity = command_.identity;
  for (int i = 0; i < 3; ++i) plan.standard[i] = child[i].get();
  plan.terminal = command_.terminal.has_value();
  plan.cgroup = cgroup_;
  TRY(Spawned spawned, spawn_program(plan));
  pid_ = spawned.pid;
  started_ms_ = system_clock().wall_ms();
  reaper_.track(pid_, [self = shared_from_this()](const siginfo_t& info) { self->child_ended(info); });
  if (command_.time_limit) arm_limit(*command_.time_limit, SIGTERM);
  return std::move(spawned.status);
}

asio::awaitable<void> Process::run(std::shared_ptr<Process> self, Fd status) {
  asio::posix::stream_descriptor pipe(executor_, status.release());
  pipe.non_blocking(true);
  StartFailure failure{};
  const auto [error, size] = co_await pipe.async_read_some(asio::buffer(&failure, sizeof failure), kAsTuple);
  if (size == sizeof failure) {
    finish_failed(agent::start_error(failure, command_.argv[0], command_.cwd));
    co_return;
  }
  state_ = ProcessState::running;
  window_.append(wire::FrameType::start, wire::encode_u32(static_cast<std::uint32_t>(pid_)));
  started_.notify_all();
  for (Source* source : {&out_, &err_})
    if (source->open) spawn(executor_, pump(self, *source));

  while (!status_) co_await progress_.wait();
  // What the child itself wrote is all there now and is owed to the readers. What a usual pipe holds is kept for them at once, with
  // room or without: how the process ended waits for none of them. For the rest of a larger one they have kPatience.
  for (Source* source : {&out_, &err_}) {
    if (!source->open) continue;
    int waiting = 0;
    if (::ioctl(source->stream.native_handle(), FIONREAD, &waiting) == 0 && waiting > 0) source->owed = static_cast<std::size_t>(waiting);
    take(*source, true);
  }
  const auto ended = std::chrono::steady_clock::now();
  while (out_.open || err_.open) {
    const bool owing = out_.owed > 0 || err_.owed > 0;
    const auto until = owing ? ended + OutputWindow::kPatience : ended + kDrain;
    if (std::chrono::steady_clock::now() < until) {
      co_await progress_.wait_until(until);
      continue;
    }
    if (!owing) break;
    for (Source* source : {&out_, &err_}) {
      window_.release_all();
      if (source->owed > 0) take(*source, true);
    }
  }
  conclude(*status_);
}

asio::awaitable<void> Process::pump([[maybe_unused]] std::shared_ptr<Process> self, Source& source) {
  while (source.open) {
    if (!window_.has_room()) {
      window_.release_stalled(std::chrono::steady_clock::now());
      if (window_.has_room()) continue;
      look_again();
      co_await room_.wait();
      continue;
    }
    const auto [error] = co_await source.stream.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
    if (error) break;
    take(source, false);
  }
}

// One timer for both sources, and none for each wait: this is on the path of every output that is faster than its reader.
void Process::look_again() {
  if (looking_) return;
  looking_ = true;
  look_.expires_after(kLookAgain);
  look_.async_wait([this, weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self) return;
    looking_ = false;
    room_.notify_all();
  });
}

bool Process::may_take(const Source& source) const { return window_.has_room() || (status_ && source.owed > 0 && source.beyond < kBeyond); }

void Process::take(Source& source, bool to_end) {
  static std::array<char, wire::kMaxFramePayload> scratch;  // one loop, one reading at a time
  for (int i = 0; source.open && (to_end || i < kReadsInARow) && may_take(source); ++i) {
    const ssize_t n = ::read(source.stream.native_handle(), scratch.data(), scratch.size());
    if (n > 0) {
      const auto size = static_cast<std::size_t>(n);
      const bool owing = source.owed > 0;
      if (!window_.has_room()) source.beyond += size;
      source.owed -= std::min(source.owed, size);
      window_.append(source.type, {scratch.data(), size});
      if (owing && source.owed == 0) progress_.notify();
      if (size < scratch.size() && !to_end) return;
      if (to_end && source.owed == 0 && i >= kReadsInARow) return;  // others go on writing: they get their 200 ms, not the loop
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      source.owed = 0;  // a terminal may have counted more than it gives
      progress_.notify();
      return;
    } else {
      // End of file; a terminal says EIO when nobody has its other end.
      source.open = false;
      source.owed = 0;
      source.stream.close();
      progress_.notify();
    }
  }
}

void Process::arm_limit(std::chrono::milliseconds after, int number) {
  limit_.expires_after(after);
  limit_.async_wait([this, weak = weak_from_this(), number](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || status_) return;
    timed_out_ = true;
    kill_group(number);
    if (number != SIGKILL) arm_limit(command_.grace, SIGKILL);
  });
}

void Process::child_ended(const siginfo_t& info) {
  limit_.cancel();
  wire::ProcessExit exit;
  if (info.si_code == CLD_EXITED) {
    exit.code = info.si_status;
  } else {
    exit.code = -1;
    exit.signal = static_cast<std::uint8_t>(info.si_status);
    exit.core_dumped = info.si_code == CLD_DUMPED;
  }
  exit.timed_out = timed_out_;
  // A time limit is for the whole group: whoever did not go with the child goes now, while the group's number is still its own.
  if (timed_out_) kill_group(SIGKILL);
  status_ = exit;
  progress_.notify();
}

void Process::finish_failed(Error error) {
  window_.append(wire::FrameType::stderr_bytes, fmt::format("{}\n", error.message));
  start_error_ = std::move(error);
  conclude({start_error_->code == "not_executable" ? 126 : 127, 0, false, false});
}

void Process::conclude(wire::ProcessExit exit) {
  limit_.cancel();
  for (Source* source : {&out_, &err_}) {
    source->open = false;
    boost::system::error_code ignored;
    source->stream.close(ignored);
  }
  boost::system::error_code ignored;
  stdin_.close(ignored);
  exit_ = exit;
  state_ = ProcessState::exited;
  ended_at_ = std::chrono::steady_clock::now();
  window_.append(wire::FrameType::exit, wire::encode_exit(exit));
  room_.notify_all();
  started_.notify_all();
  stdin_free_.notify_all();
  ended_();
}

void Process::kill_group(int number) {
  // Until the child has made its own group there is only itself.
  if (::kill(-pid_, number) != 0 && errno == ESRCH) ::kill(pid_, number);
  if (!command_.terminal || !out_.open) return;
  // A shell on a terminal gives each job a group of its own.
  pid_t foreground = 0;
  if (::ioctl(out_.stream.native_handle(), TIOCGPGRP, &foreground) == 0 && foreground > 1 && foreground != pid_)
    ::kill(-foreground, number);
}

Result<> Process::signal(int number) {
  const auto ended = [] { return fail(ErrorKind::gone, "process_exited", "the process has ended", "look at its session to see how"); };
  switch (state_) {
    case ProcessState::exited:
      return ended();
    case ProcessState::created:
      if (number != SIGKILL && number != SIGTERM && number != SIGINT && number != SIGHUP)
        return fail(ErrorKind::conflict, "process_not_started", "the process has not been started", "attach to it first");
      conclude({-1, static_cast<std::uint8_t>(number), false, false});
      return {};
    case ProcessState::starting:
    case ProcessState::running:
      break;
  }
  if (status_) return ended();
  kill_group(number);
  return {};
}

Result<> Process::resize(TerminalSize size) {
  if (!command_.terminal)
    return fail(ErrorKind::conflict, "not_a_terminal", "the process was not created with a terminal", "create it with pty");
  if (state_ == ProcessState::exited || status_)
    return fail(ErrorKind::gone, "process_exited", "the process has ended", "look at its session to see how");
  command_.terminal = size;
  if (!out_.open) return {};  // not started: it will start with this size
  const winsize value = window_size(size);
  if (::ioctl(out_.stream.native_handle(), TIOCSWINSZ, &value) != 0) return fail_errno(errno, "resize the terminal");
  return {};
}

}  // namespace space::agent
