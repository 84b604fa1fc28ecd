// One command in a sandbox as the terminal sees it: output live, input when there is any, signals, and its exit status.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"

namespace space::cli {

struct CommandOptions {
  std::vector<std::string> argv;  // either this
  std::string shell;              // or one line for the guest's shell
  std::string cwd;
  std::vector<std::string> env;  // "NAME=value", or "NAME" to hand on our own
  std::string user;
  double time_limit_s = 0;  // 0: none
  bool tty = false;         // a pseudo-terminal of the size of ours, which goes raw
  bool no_stdin = false;    // closed, even when ours is a pipe or a file
};

// What Ctrl-C (INT, TERM, HUP to us) does: end the command at once, or hand the signal on and end it at the second.
enum class OnInterrupt { kill, forward };

// Returns its status: the exit code, 128 + signal, or kTimedOut; kInterrupted after a kill by Ctrl-C. `signals` is a set of INT, TERM
// and HUP that the caller has had since before, with what came meanwhile; nullptr: one of its own.
Task<int> run_command(Context& context, std::string sandbox, CommandOptions options, OnInterrupt on_interrupt,
                      std::shared_ptr<asio::signal_set> signals = nullptr);

Result<json::object> env_object(const std::vector<std::string>& pairs);

// Writes an event's output where it belongs (a gap is noted on standard error) and, for an exit, gives the status. With --json every
// event is one line of JSON, but for a terminal's bytes.
Task<std::optional<int>> show_event(Context& context, const http::SseEvent& event);

}  // namespace space::cli
