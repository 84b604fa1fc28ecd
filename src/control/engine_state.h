// What the engine keeps for an operation under way and for a sandbox that has any. Internal to engine*.cc.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "control/engine.h"

namespace space::control {

struct Engine::Live {
  Live(asio::any_io_executor executor, Operation op, Sandbox box)
      : operation(std::move(op)), sandbox(std::move(box)), changed(std::move(executor)) {}
  Operation operation;
  Sandbox sandbox;               // as it was when the operation was accepted; a create is made from it
  std::int64_t accepted_us = 0;  // monotonic
  std::int64_t called_us = 0;    // of the last call of node
  bool asked = false;            // node may know of it
  bool over = false;
  Signal changed;  // operation or over changed

  // Node does these in one step: once asked, the answer is on its way.
  bool is_in_one_step() const {
    return asked && operation.state == OperationState::running && operation.kind != OperationKind::create &&
           operation.kind != OperationKind::remove;
  }
};

struct Engine::Lane {
  std::deque<LivePtr> waiting;
  LivePtr current;
  bool queued = false;                    // stands in ready_
  std::optional<std::string> end_reason;  // it ended by itself while an operation was under way
};

}  // namespace space::control
