// What is open into a sandbox: as long as one of these lives the sandbox is in use, and its pause or end cuts what it stands for.
#pragma once

#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <utility>

#include "base/async.h"
#include "node/sandbox.h"

namespace space::node {

// For node's loop. Holds the sandbox. `cut` is called on the loop, perhaps more than once, and ends nothing but its own stream.
class OpenStream {
 public:
  OpenStream(std::shared_ptr<Sandbox> sandbox, std::function<void()> cut)
      : sandbox_(std::move(sandbox)), entry_(sandbox_->streams.insert(sandbox_->streams.end(), std::move(cut))) {}
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;
  ~OpenStream() { sandbox_->streams.erase(entry_); }

 private:
  std::shared_ptr<Sandbox> sandbox_;
  std::list<std::function<void()>>::iterator entry_;
};

// One whose end is waited for, beside what it stands for.
class Cut {
 public:
  Cut(std::shared_ptr<Sandbox> sandbox, const asio::any_io_executor& executor)
      : signal_(executor), stream_(std::move(sandbox), [this] {
          done_ = true;
          signal_.notify_all();
        }) {}
  asio::awaitable<void> wait() {
    while (!done_) co_await signal_.wait();
  }

 private:
  Signal signal_;
  bool done_ = false;
  OpenStream stream_;
};

}  // namespace space::node
