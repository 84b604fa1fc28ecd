// One coroutine that waits, woken by others of the same loop. A notification that comes while nobody waits is kept.
// (base's Signal wakes many; this one costs a single timer and no coroutine of its own: it is on the path of every output.)
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>

#include "base/async.h"

namespace space::agent {

class Wakeup {
 public:
  explicit Wakeup(asio::any_io_executor executor) : timer_(std::move(executor)) {}

  void notify() {
    notified_ = true;
    timer_.cancel();
  }
  // True when notified, false when the time passed or the coroutine was cancelled.
  asio::awaitable<bool> wait_until(std::chrono::steady_clock::time_point time) {
    if (!notified_) {
      timer_.expires_at(time);
      co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    co_return std::exchange(notified_, false);
  }
  asio::awaitable<bool> wait() { return wait_until(std::chrono::steady_clock::time_point::max()); }

 private:
  asio::steady_timer timer_;
  bool notified_ = false;
};

}  // namespace space::agent
