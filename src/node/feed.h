// A source that is read in the background, one item ahead, so that its reader can wait for the next item *or* for time to pass
// without breaking off the read. For one loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/async.h"

namespace space::node {

template <class T>
class Feed {
  struct State {
    explicit State(const asio::any_io_executor& executor) : signal(executor) {}
    std::optional<Result<T>> item;
    bool over = false;  // the reader went away, or the last item was an error
    Signal signal;
  };

 public:
  // `next` is called for one item after another until it fails; both functions keep alive what they need. `cancel` makes a
  // pending `next` return soon.
  Feed(const asio::any_io_executor& executor, std::function<Task<T>()> next, std::function<void()> cancel)
      : state_(std::make_shared<State>(executor)), cancel_(std::move(cancel)) {
    spawn(executor, read(state_, std::move(next)));
  }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;
  ~Feed() {
    state_->over = true;
    cancel_();
    state_->signal.notify_all();
  }

  // std::nullopt when nothing came in `time`.
  asio::awaitable<std::optional<Result<T>>> next_for(std::chrono::milliseconds time) {
    auto state = state_;
    if (!state->item) co_await state->signal.wait_for(time);
    auto item = std::exchange(state->item, std::nullopt);
    if (item) state->signal.notify_all();
    co_return item;
  }

 private:
  static asio::awaitable<void> read(std::shared_ptr<State> state, std::function<Task<T>()> next) {
    while (!state->over) {
      auto item = co_await next();
      if (state->over) co_return;
      state->over = !item;
      state->item = std::move(item);
      state->signal.notify_all();
      while (state->item && !state->over) co_await state->signal.wait();
    }
  }
  std::shared_ptr<State> state_;
  std::function<void()> cancel_;
};

}  // namespace space::node
