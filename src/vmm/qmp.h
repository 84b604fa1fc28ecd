// A client of one VMM's QMP socket. Belongs to one loop. Callers take turns: a turn is one command, or a few that are sent at once.
// Each has a time limit, and a VMM that misses it, talks nonsense, answers out of turn or floods us is given up for good: every later
// call fails with the first error. (A caller's own, shorter limit only ends its wait.)
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/fd.h"
#include "base/json.h"
#include "vmm/qmp_message.h"

namespace space::vmm {

struct QmpLimits {
  std::chrono::milliseconds greeting{30'000};  // from the connection to the end of negotiation: a VMM that starts is slow
  std::chrono::milliseconds answer{30'000};    // of each command that names no limit
  std::size_t messages_per_second = 2'000;     // more than this is a flood
};

struct QmpCommand {
  std::string name;
  json::object arguments = {};
};

class QmpClient {
  struct State;
  class Calls;

 public:
  // Called on the loop for every event, and once with nullptr when the connection is over.
  using EventHandler = std::function<void(const QmpEvent*)>;

  // `socket`: connected stream socket (blocking or not). Reads the greeting and leaves negotiation mode.
  static Task<std::unique_ptr<QmpClient>> open(Fd socket, EventHandler on_event = {}, QmpLimits limits = {});
  ~QmpClient();  // closes the connection; calls under way end with qmp_closed

  // Runs a command and gives its return value. `pass` is a descriptor that travels with it (getfd, add-fd); it is only read
  // here. Errors: unavailable/qmp_error (the VMM refused, the client stays usable), qmp_protocol, qmp_flood, qmp_closed, and
  // deadline_exceeded/qmp_timeout. A caller who misses a `limit` of its own leaves the client usable; the late answer is dropped.
  Task<json::value> execute(std::string command, json::object arguments = {}, const Fd* pass = nullptr,
                            std::optional<std::chrono::milliseconds> limit = {});

  // Commands that were sent at once. The VMM runs them in their order and between them waits for nobody; each is run whatever became of
  // those before it. Other callers have their turn when all are answered, or when this is destroyed: later answers are dropped.
  class Series {
   public:
    // The answer to the command of this number, from 0: any order, each once. Errors as those of execute without a limit.
    Task<json::value> answer(std::size_t number);

   private:
    friend QmpClient;
    explicit Series(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
    std::shared_ptr<Calls> calls_;
  };
  static constexpr std::size_t kMostTogether = 4;  // a VMM holds back what comes while it works; so much always fits into its socket
  Task<Series> send_together(std::vector<QmpCommand> commands);
  const std::string& version() const;  // of the greeting
  bool usable() const;

 private:
  explicit QmpClient(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace space::vmm
