#include "net/stock.h"

#include <chrono>

#include "base/log.h"

namespace space::net {

NetStock::NetStock(std::size_t size, Maker make) : size_(size), make_(std::move(make)), filler_([this] { fill(); }) {}

NetStock::~NetStock() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  filler_.join();
}

Result<SandboxNet> NetStock::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!ready_.empty()) {
      SandboxNet net = std::move(ready_.front());
      ready_.pop_front();
      changed_.notify_all();
      return net;
    }
  }
  return make_();
}

std::size_t NetStock::ready() const {
  const std::lock_guard lock(mutex_);
  return ready_.size();
}

void NetStock::fill() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || ready_.size() < size_; });
    if (stopping_) return;
    lock.unlock();
    auto net = make_();
    lock.lock();
    if (net) {
      ready_.push_back(std::move(*net));
      continue;
    }
    log::warn("net.stock_not_filled", {{"error", net.error()}});
    // Whoever needs one meanwhile makes it and gets the error; trying again at once would only repeat it in the log.
    changed_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_; });
  }
}

}  // namespace space::net
