// A few sandbox networks kept ready, so that taking one costs no system call worth mentioning.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "net/sandbox_net.h"

namespace space::net {

// Owns one thread that fills the stock up again after each take. Safe from any thread. Nothing of the stock is pinned: it ends
// with the process.
class NetStock {
 public:
  using Maker = std::function<Result<SandboxNet>()>;  // called on the stock's own thread, and in take() when the stock is empty

  NetStock(std::size_t size, Maker make = make_sandbox_net);
  ~NetStock();
  NetStock(const NetStock&) = delete;
  NetStock& operator=(const NetStock&) = delete;

  Result<SandboxNet> take();
  std::size_t ready() const;

 private:
  void fill();

  const std::size_t size_;
  const Maker make_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SandboxNet> ready_;
  bool stopping_ = false;
  std::thread filler_;
};

}  // namespace space::net
