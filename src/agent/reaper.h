// Collects every child that ended, ours and the orphans that PID 1 inherits, in one place: so no orphan stays a zombie and no exit
// status of a tracked child is taken by somebody else. Driven by SIGCHLD on a signalfd (signalfd(2)); belongs to the loop.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <csignal>
#include <functional>
#include <sys/types.h>
#include <unordered_map>

#include "base/async.h"

namespace space::agent {

class Reaper {
 public:
  // Blocks SIGCHLD for the calling thread: construct before any other thread starts. One a program.
  explicit Reaper(asio::any_io_executor executor);
  Result<> start();
  // `ended` runs once, on the loop, when the child has ended and before its pid is free again: the group may still be signalled.
  // To be called in the same turn of the loop that made the child.
  void track(pid_t pid, std::function<void(const siginfo_t&)> ended);

 private:
  void wait_for_signal();
  void collect();

  asio::posix::stream_descriptor signals_;
  std::unordered_map<pid_t, std::function<void(const siginfo_t&)>> tracked_;
};

}  // namespace space::agent
