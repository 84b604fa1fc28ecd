// What happens to sandboxes without being asked for, told to whoever listens (the api role). Nothing is stored: a listener that
// was away compares GET /v1/sandboxes with what it knows. For node's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/async.h"

namespace space::node {

struct NodeEvent {
  std::uint64_t sequence = 0;
  std::string
      type;  // "sandbox_ended"; "sandbox_snapshot", when its disk was kept by itself; "volume_wanted", when one that rests is mounted
  std::string sandbox;
  std::string reason;  // of the end; of a snapshot its id
};

class Events {
 public:
  explicit Events(asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // One listener. Lives no longer than its Events.
  class Listener {
   public:
    explicit Listener(Events& events);
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener();
    // Nothing in `time`: nullopt. After `overflowed` the listener has missed something and must start over.
    asio::awaitable<std::optional<NodeEvent>> next_for(std::chrono::milliseconds time);
    bool overflowed() const { return overflowed_; }

   private:
    friend class Events;
    Events& events_;
    std::deque<NodeEvent> queue_;
    bool overflowed_ = false;
    Signal signal_;
  };

  void publish(std::string type, std::string sandbox, std::string reason);

 private:
  asio::any_io_executor executor_;
  std::set<Listener*> listeners_;
  std::uint64_t sequence_ = 0;
};

}  // namespace space::node
