// Small guards of the lifecycle's coroutines.
#pragma once

#include <cstddef>

#include "base/async.h"
#include "node/sandbox.h"

namespace space::node {

// Counts an operation for Sandboxes::settle.
class Busy {
 public:
  Busy(std::size_t& count, Signal& idle) : count_(count), idle_(idle) { ++count_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    if (--count_ == 0) idle_.notify_all();
  }

 private:
  std::size_t& count_;
  Signal& idle_;
};

// While it lives, the sandbox's agent is not asked anything; streams wait for what comes.
class Resting {
 public:
  explicit Resting(Sandbox& sandbox) : sandbox_(sandbox) { sandbox_.resting = true; }
  Resting(const Resting&) = delete;
  Resting& operator=(const Resting&) = delete;
  ~Resting() {
    sandbox_.resting = false;
    sandbox_.changed.notify_all();
  }

 private:
  Sandbox& sandbox_;
};

}  // namespace space::node
