// A worker as the parent sees it: a process, the channel to it, and the calls that wait for an answer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>

#include "base/log.h"
#include "egress/channel.h"

namespace space::egress {

class WorkerProcess : public std::enable_shared_from_this<WorkerProcess> {
 public:
  using Spawn = std::function<Result<pid_t>(Fd channel)>;
  // What a worker says unasked: names, events, counters.
  using Heard = std::function<void(const json::object& body)>;

  static Result<std::shared_ptr<WorkerProcess>> start(asio::any_io_executor executor, const Spawn& spawn, Heard heard);
  ~WorkerProcess();  // ends the process

  // Sends without waiting; the answer is thrown away.
  void tell(Message message);
  // The worker's answer. A worker that is silent for 10 s is ended: unavailable/worker_lost, as when it died.
  Task<json::object> call(Message message);
  // Returns when the process has ended and everything that it had said was heard.
  asio::awaitable<void> ended();
  void end();
  pid_t pid() const { return pid_; }
  bool alive() const { return !ended_; }

 private:
  struct Call {
    explicit Call(const asio::any_io_executor& executor) : answered(executor) {}
    Signal answered;
    std::optional<Result<json::object>> answer;
  };
  WorkerProcess(asio::any_io_executor executor, std::unique_ptr<Channel> channel, pid_t pid, Heard heard);
  asio::awaitable<void> listen();

  asio::any_io_executor executor_;
  std::unique_ptr<Channel> channel_;
  pid_t pid_;
  Heard heard_;
  std::int64_t next_call_ = 1;
  std::map<std::int64_t, std::shared_ptr<Call>> calls_;
  bool ended_ = false;
  Signal end_signal_;
};

// This program again, as `space egress-worker` with the channel as descriptor 3.
Result<pid_t> spawn_this_program(Fd channel, log::Level log_level);

}  // namespace space::egress
