// A connection that carries FUSE messages between a sandbox with a mount and the volume: each is as long as its first 4 bytes say
// (fuse_in_header, fuse_out_header). Blocking, for threads of their own: the agent's loop may be waiting for a program that it starts
// from a mounted volume. node carries the bytes between two guests and reads none.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "http/server.h"

namespace space::agent {

class VolumeWire {
 public:
  // Answers 101 to a `GET` with `Upgrade: fuse`, with `header` (a whole line, or ""), and takes its socket.
  static Result<std::shared_ptr<VolumeWire>> take(http::Exchange& exchange, std::string_view header);
  explicit VolumeWire(Fd socket) : socket_(std::move(socket)) {}

  // The next message; empty when the connection is over, what comes is none, or it was closed: what arrived before is dropped then.
  std::vector<std::byte> receive(std::size_t least);
  bool send(std::span<const std::byte> message);  // one caller at a time
  void close();                                   // from any thread; whoever waits returns
  bool closed() const { return closed_; }

 private:
  bool fill(std::span<std::byte> into);
  Fd socket_;
  std::atomic<bool> closed_ = false;
};

}  // namespace space::agent
