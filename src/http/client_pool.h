// The connections of one Client. Internal.
#pragma once

#include <chrono>
#include <deque>
#include <memory>

#include "http/client.h"
#include "http/in_buffer.h"
#include "http/stream.h"

namespace space::http {

struct ClientConnection {
  std::unique_ptr<Stream> stream;
  InBuffer in;
  bool reused = false;
  unsigned generation = 0;
};

class ClientPool : public std::enable_shared_from_this<ClientPool> {
 public:
  ClientPool(asio::any_io_executor executor, Connector connector, ClientOptions options);

  // A kept connection that still looks alive, else a new one.
  Task<std::unique_ptr<ClientConnection>> acquire(bool fresh);
  void give_back(std::unique_ptr<ClientConnection> connection);
  void close_idle();

  asio::any_io_executor executor;
  Connector connector;
  ClientOptions options;
  bool closed = false;

 private:
  struct Idle {
    std::unique_ptr<ClientConnection> connection;
    std::chrono::steady_clock::time_point since;
  };
  Task<std::unique_ptr<ClientConnection>> connect();
  void watch_idle();
  std::deque<Idle> idle_;  // the oldest first
  asio::steady_timer timer_;
  bool watching_ = false;
  unsigned generation_ = 0;  // connections of an earlier one are not kept
};

}  // namespace space::http
