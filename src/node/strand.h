// One operation at a time: coroutines of one loop enter in the order in which they asked.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <utility>

#include "base/async.h"

namespace space::node {

class Strand {
  struct Waiter {
    explicit Waiter(const asio::any_io_executor& executor) : timer(executor, asio::steady_timer::time_point::max()) {}
    asio::steady_timer timer;
    bool admitted = false;
  };
  struct State {
    bool busy = false;
    std::deque<std::shared_ptr<Waiter>> waiting;
  };

 public:
  explicit Strand(asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // Held while the owner works; its end admits the next.
  class Turn {
   public:
    Turn() = default;
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&& other) noexcept {
      if (this != &other) {
        leave();
        state_ = std::move(other.state_);
      }
      return *this;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { leave(); }

   private:
    friend class Strand;
    explicit Turn(std::shared_ptr<State> state) : state_(std::move(state)) {}
    void leave() {
      auto state = std::move(state_);
      if (!state) return;
      if (state->waiting.empty()) {
        state->busy = false;
        return;
      }
      auto next = std::move(state->waiting.front());
      state->waiting.pop_front();
      next->admitted = true;
      next->timer.cancel();
    }
    std::shared_ptr<State> state_;
  };

  asio::awaitable<Turn> enter();
  bool busy() const { return state_->busy; }

 private:
  asio::any_io_executor executor_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace space::node
