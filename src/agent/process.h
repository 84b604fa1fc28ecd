// One process: from its creation over its start, its streams and its time limit to its exit. A process lives on whether or not
// anybody reads. It ends when its direct child ends: what others write to the pipe is still taken for 200 ms after that.
// Everything belongs to the loop.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/reaper.h"
#include "agent/settings.h"
#include "agent/spawn.h"
#include "agent/wakeup.h"
#include "agent/window.h"
#include "wire/agent_protocol.h"

namespace space::agent {

struct TerminalSize {
  std::uint16_t rows = 24, cols = 80;
};

// A request, checked; users and paths are looked up.
struct Command {
  std::string session;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  User user;
  Identity identity;
  std::string cwd;
  bool cwd_optional = false;
  bool stdin_open = false;
  std::optional<TerminalSize> terminal;
  std::optional<std::chrono::milliseconds> time_limit;
  std::chrono::milliseconds grace{2'000};
};

enum class ProcessState { created, starting, running, exited };

class Process : public std::enable_shared_from_this<Process> {
 public:
  // `ended` runs once, on the loop, when the exit stands in the window. `cgroup` as in SpawnPlan, borrowed.
  Process(asio::any_io_executor executor, Reaper& reaper, const WindowLimits& limits, std::uint32_t number, Command command, int cgroup,
          std::function<void()> ended);

  // Starts the program when that has not happened, and returns when it runs or when it is known why it cannot: the same error
  // every time. Several may call at once.
  Task<> start();

  // The right to write to stdin; one at a time has it, so that two requests do not mix. Given back when destroyed.
  class StdinTurn {
   public:
    StdinTurn(StdinTurn&&) = default;
    StdinTurn& operator=(StdinTurn&&) = delete;
    ~StdinTurn();
    // All bytes go in; waits while the process does not read. conflict/stdin_closed when it never will.
    Task<> write(std::span<const std::byte> bytes);
    Task<> close();  // end of file; on a terminal the character for it

   private:
    friend class Process;
    explicit StdinTurn(std::shared_ptr<Process> process) : process_(std::move(process)) {}
    std::shared_ptr<Process> process_;
  };
  // Waits for the start of the process (30 s: conflict/process_not_started) and for the turns before.
  Task<StdinTurn> stdin_turn();

  // To the whole group. A process that was not started ends at once by KILL, TERM, INT or HUP. gone/process_exited after the end.
  Result<> signal(int number);
  Result<> resize(TerminalSize size);

  std::uint32_t number() const { return number_; }
  const Command& command() const { return command_; }
  ProcessState state() const { return state_; }
  pid_t pid() const { return pid_; }
  std::int64_t started_ms() const { return started_ms_; }
  std::chrono::steady_clock::time_point created_at() const { return created_at_; }
  std::chrono::steady_clock::time_point ended_at() const { return ended_at_; }
  const std::optional<wire::ProcessExit>& exit() const { return exit_; }
  OutputWindow& window() { return window_; }

 private:
  // One pipe, or the terminal's end, that output comes from.
  struct Source {
    Source(asio::any_io_executor executor, wire::FrameType frame) : stream(std::move(executor)), type(frame) {}
    asio::posix::stream_descriptor stream;
    wire::FrameType type;
    std::size_t owed = 0;    // bytes that lay in the pipe when the child ended
    std::size_t beyond = 0;  // those of them that the window took although it had no room
    bool open = false;
  };

  Result<Fd> launch();  // forks; the descriptor tells whether the program runs
  Result<> make_pipes(Fd (&child)[3]);
  Result<> make_terminal(Fd (&child)[3]);
  asio::awaitable<void> run(std::shared_ptr<Process> self, Fd status);
  asio::awaitable<void> pump(std::shared_ptr<Process> self, Source& source);
  void take(Source& source, bool to_end);  // reads what there is, as far as the window takes it
  bool may_take(const Source& source) const;
  void look_again();  // wakes those that wait for room in a second, to look at the readers
  void arm_limit(std::chrono::milliseconds after, int signal);
  void child_ended(const siginfo_t& info);
  void finish_failed(Error error);
  void conclude(wire::ProcessExit exit);
  void kill_group(int number);

  asio::any_io_executor executor_;
  Reaper& reaper_;
  std::uint32_t number_;
  Command command_;
  int cgroup_;
  std::function<void()> ended_;
  ProcessState state_ = ProcessState::created;
  pid_t pid_ = 0;
  std::int64_t started_ms_ = 0;
  std::chrono::steady_clock::time_point created_at_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_at_;
  std::optional<Error> start_error_;
  std::optional<wire::ProcessExit> exit_;    // reported
  std::optional<wire::ProcessExit> status_;  // the child's end, before the drain is over
  bool timed_out_ = false;

  Signal room_;      // readers moved on
  Wakeup progress_;  // the child ended, or a source did: `run` waits for it
  Signal started_;   // the state is no longer `created` or `starting`
  Signal stdin_free_;
  bool stdin_busy_ = false;
  OutputWindow window_;
  Source out_, err_;  // on a terminal `out_` alone
  asio::posix::stream_descriptor stdin_;
  asio::steady_timer limit_;
  asio::steady_timer look_;
  bool looking_ = false;
};

}  // namespace space::agent
