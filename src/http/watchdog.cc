#include "http/watchdog.h"

namespace space::http {

using TimePoint = asio::steady_timer::time_point;

struct Watchdog::State : std::enable_shared_from_this<State> {
  State(const asio::any_io_executor& executor, std::function<void()> call) : timer(executor), expired(std::move(call)) {}

  void wait() {
    waiting = true;
    rings_at = deadline;
    timer.expires_at(deadline);
    timer.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (error) return;  // moved, or the watchdog is gone
      self->rang();
    });
  }

  void rang() {
    waiting = false;
    if (deadline == TimePoint::max()) return;
    if (asio::steady_timer::clock_type::now() < deadline) return wait();
    deadline = TimePoint::max();
    const auto call = expired;  // it may end the watchdog
    if (call) call();
  }

  asio::steady_timer timer;
  std::function<void()> expired;
  TimePoint deadline = TimePoint::max();
  TimePoint rings_at = TimePoint::max();
  bool waiting = false;
};

Watchdog::Watchdog(const asio::any_io_executor& executor, std::function<void()> expired)
    : state_(std::make_shared<State>(executor, std::move(expired))) {}

Watchdog::~Watchdog() {
  state_->expired = nullptr;
  state_->deadline = TimePoint::max();
  state_->timer.cancel();
}

void Watchdog::set(std::chrono::milliseconds time) {
  if (time <= time.zero()) return clear();
  state_->deadline = asio::steady_timer::clock_type::now() + time;
  if (!state_->waiting || state_->deadline < state_->rings_at) state_->wait();
}

void Watchdog::clear() { state_->deadline = TimePoint::max(); }

}  // namespace space::http
