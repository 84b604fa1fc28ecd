// What the gateway's parent and a worker say to each other, over a SEQPACKET socket pair: JSON, beside it perhaps a secret (never
// inside the JSON) and descriptors. Order is kept. The worker is exposed to guests, so the parent reads its messages strictly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/secret.h"

namespace space::egress {

struct Message {
  json::object body;
  Secret secret;
  std::vector<Fd> fds;
};

// One end; belongs to one loop.
class Channel {
 public:
  static constexpr std::size_t kLongest = 16 << 20;     // bytes of one message
  static constexpr std::size_t kMostQueued = 64 << 20;  // then the other end counts as hung

  static Result<std::unique_ptr<Channel>> make(asio::any_io_executor executor, Fd socket);
  ~Channel();

  // Hands to the kernel what fits at once and queues the rest. What the kernel has got reaches the other end even when this
  // process dies now. False when the other end is gone or takes nothing.
  bool send(Message message);
  asio::awaitable<void> flushed();  // returns when nothing is queued, or the other end is gone
  Task<Message> receive();          // one reader; `unavailable` when the other end is gone, else its fault: give it up
  void close();

 private:
  struct State;
  explicit Channel(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace space::egress
