// One TCP connection of a guest, from its acceptance to its end. What it is, is decided in connection.cc; how its bytes are
// handled, in splice.cc and http_*.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egress/client_hello.h"
#include "egress/policy.h"
#include "egress/sandbox.h"
#include "http/stream.h"

namespace space::egress {

class Flow {
 public:
  Flow(std::shared_ptr<Sandbox> sandbox, Destination to);
  ~Flow();
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  Sandbox& sandbox() { return *sandbox_; }
  const Destination& to() const { return to_; }
  const Settings& settings() const { return *sandbox_->settings(); }
  std::string host_text() const;  // the name, or the address

  // Streams that cut() resets; the owner takes them off again before they go.
  void watch(http::Stream& stream) { streams_.push_back(&stream); }
  void unwatch(http::Stream& stream) { std::erase(streams_, &stream); }

  // Ends the connection at once, both ways, with a reset. `why` goes to the audit log.
  void cut(std::string why);
  bool is_cut() const { return cut_; }
  const std::string& why_cut() const { return why_cut_; }

  // The policy changed: may what is under way go on? Cuts otherwise.
  void reconsider();
  std::function<void()> on_reconsider;  // looks at requests that run side by side, after that
  // The request under way, for reconsider(); an empty method: none. `host` is what it named where a bare address was dialled.
  void set_request(std::string method, std::string path, std::string host);
  Verdict::Handling handling = Verdict::Handling::refuse;  // set once, before anything is waited for
  std::optional<ClientHello> hello;                        // of TLS that is passed on

  // Accounting of what passes, against the budget; how long to wait before more may. nullopt: the flow was cut.
  std::optional<std::chrono::milliseconds> count_up(std::size_t bytes);
  std::optional<std::chrono::milliseconds> count_down(std::size_t bytes);
  // The same with the waiting; false: the flow was cut.
  asio::awaitable<bool> passed_up(std::size_t bytes);
  asio::awaitable<bool> passed_down(std::size_t bytes);
  // The same for what the guest sent and the gateway reads itself: only what follows from it goes out, which went_out() is told of.
  asio::awaitable<bool> heard(std::size_t bytes);
  void went_out(std::size_t bytes) { sandbox_->counters().outside += bytes; }
  std::uint64_t bytes_up = 0, bytes_down = 0;

  Event event(std::string kind, std::string verdict) const;  // with destination, protocol and bytes filled in
  std::string protocol = "tcp";
  void set_dialled(Address address);
  Address dialled{};  // the upstream's address, once there is one
  bool has_dialled = false;

 private:
  std::optional<std::string> objection() const;  // of the present policy
  std::optional<std::chrono::milliseconds> count_guest(std::size_t bytes);
  std::optional<std::chrono::milliseconds> charge(std::size_t bytes);
  asio::awaitable<bool> pass(std::optional<std::chrono::milliseconds> wait);
  std::shared_ptr<Sandbox> sandbox_;
  Destination to_;
  std::vector<http::Stream*> streams_;
  std::string method_, path_, host_;
  bool cut_ = false;
  std::string why_cut_;
};

// Serves one accepted connection until it is over. Never fails: what goes wrong ends the connection and stands in the audit log.
asio::awaitable<void> serve_connection(std::shared_ptr<Sandbox> sandbox, Fd accepted);

// Keeps a stream among those that a flow cuts, as long as this lives.
class Watched {
 public:
  Watched(Flow& flow, http::Stream& stream) : flow_(flow), stream_(stream) { flow_.watch(stream_); }
  ~Watched() { flow_.unwatch(stream_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Flow& flow_;
  http::Stream& stream_;
};

}  // namespace space::egress
