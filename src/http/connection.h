// One connection of the server: reads heads, runs the handler for one exchange after another, enforces the limits. Internal.
#pragma once

#include <array>
#include <ctime>
#include <boost/asio/cancellation_signal.hpp>
#include <list>
#include <memory>
#include <string>

#include "http/body.h"
#include "http/head.h"
#include "http/in_buffer.h"
#include "http/server.h"
#include "http/stream.h"
#include "http/watchdog.h"

namespace space::http {

class Connection;

// What all connections of one server share.
struct ServerCore {
  Handler handler;
  Options options;
  bool stopping = false;
  std::list<Connection*> waiting;  // for the head of a request, or for the rest of one that was answered; the longest first
  const std::string& date();       // the Date header's value, made once a second

 private:
  std::time_t date_at_ = -1;
  std::string date_;
};

class Connection {
 public:
  Connection(const asio::any_io_executor& executor, std::shared_ptr<ServerCore> core, std::unique_ptr<Stream> stream, Peer peer);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  asio::awaitable<void> run();  // ends when the connection is over
  void finish_up();             // the server stops: closes when idle, else after the current exchange
  void cut();                   // RST, and the handler is cancelled

  // For the exchange.
  ServerCore& core() { return *core_; }
  const Peer& peer() const { return peer_; }
  Stream& stream() { return *stream_; }
  InBuffer& in() { return in_; }
  bool broken() const { return broken_; }
  // Bounded by body_timeout. After a failed or abandoned write nothing can follow on this connection.
  Task<> send(std::span<const asio::const_buffer> parts);
  asio::awaitable<Transfer> receive_ahead();  // to the buffer; not bounded
  asio::awaitable<void> broken_off();         // waits for a reset or a hang-up
  // For a client that has closed its sending side in good order: waits until it breaks off, or nothing was sent to it for
  // half_closed_timeout.
  asio::awaitable<void> no_longer_served();
  asio::awaitable<BodyReader::Piece> read_body(BodyReader& body, std::span<std::byte> into, std::chrono::milliseconds limit,
                                               bool& timed_out);
  void reset();

  // Cancels whatever the handler waits for; outlives the coroutine (see server.cc).
  asio::cancellation_signal cancel_signal;

 private:
  void set_waiting(bool waiting);
  asio::awaitable<void> nothing_sent_for(std::chrono::milliseconds time);  // from now, or from what is sent meanwhile
  asio::awaitable<void> serve();
  Task<std::optional<Head>> read_head();
  asio::awaitable<bool> serve_one(Head head);    // true: another request may follow
  asio::awaitable<bool> drain(BodyReader body);  // false: the rest did not come soon enough, or not at all
  asio::awaitable<void> refuse(Error error);
  asio::awaitable<void> close_gently();

  std::shared_ptr<ServerCore> core_;
  std::optional<std::list<Connection*>::iterator> place_;  // in `waiting`
  std::unique_ptr<Stream> stream_;
  Peer peer_;
  InBuffer in_;
  bool idle_ = false;
  bool reading_ = false;
  bool broken_ = false;
  bool cut_ = false;
  bool read_expired_ = false, write_expired_ = false;
  asio::steady_timer::time_point sent_at_;
  Watchdog read_watch_, write_watch_;
  std::size_t served_ = 0;
};

}  // namespace space::http
