// A time limit that is set again for every piece of a transfer. Setting it is one store: the timer underneath is moved only
// when it has to ring earlier, or when it rang too early. For this folder and src/egress.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/async.h"

namespace space::http {

class Watchdog {
 public:
  // `expired` runs on the loop, once for each limit that passed.
  Watchdog(const asio::any_io_executor& executor, std::function<void()> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void set(std::chrono::milliseconds time);  // from now; zero or less: no limit
  void clear();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace space::http
