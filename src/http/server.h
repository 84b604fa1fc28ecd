// An HTTP/1.1 server on Unix and TCP sockets. Handlers are coroutines on the loop that the server was made with.
//
// Limits (all in Options) hold before a handler runs: header count and bytes, time for the head, time for each piece of body,
// idle time of a kept-alive connection, connections at once. What breaks one gets a problem+json answer where that is still
// possible, one log line, and its connection closed; nobody else notices.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/async.h"
#include "base/fd.h"
#include "base/unix_socket.h"
#include "http/byte_stream.h"
#include "http/message.h"

namespace space::http {

class TlsContext;  // http/tls.h; kept apart so that the agent does not link OpenSSL

// Who sent a request, as the kernel or the accepting socket knows it; never from a header.
struct Peer {
  std::optional<PeerCredentials> credentials;  // Unix sockets
  std::string address;                         // TCP: "10.0.0.1", else ""
  std::uint16_t port = 0;
};

// One request and its answer. Belongs to one handler on one loop. A handler that returns an error before it replied gets that
// error sent as problem+json; after `start` the connection is cut instead, so that a client never takes half for whole.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const std::string& method() const = 0;
  virtual const Target& target() const = 0;
  virtual const Headers& headers() const = 0;
  virtual const Peer& peer() const = 0;
  virtual std::optional<std::uint64_t> content_length() const = 0;
  virtual bool has_body() const = 0;  // a Content-Length above 0 or chunked

  const std::string& param(std::string_view name) const;  // from the router's pattern; asking for an unknown one is our own mistake
  std::map<std::string, std::string, std::less<>> params;
  // Filled by middleware (authentication) for the handlers behind it.
  std::map<std::string, std::string, std::less<>> attributes;

  // The body in pieces; 0 at its end. "Expect: 100-continue" is answered at the first read.
  virtual Task<std::size_t> read(std::span<std::byte> into) = 0;
  Task<std::string> read_body(std::size_t limit);  // whole; longer: too_large/body_too_large
  // For this body, in place of Options::body_timeout; zero: no limit, for what a person types. TCP keepalive still notices a
  // client that vanished.
  virtual void set_read_timeout(std::chrono::milliseconds) {}

  virtual Task<> reply(Response response) = 0;
  // A streamed answer: without a length it is chunked and `finish` writes the last chunk. Answers to HEAD carry no body.
  virtual Task<> start(int status, Headers headers, std::optional<std::uint64_t> length = std::nullopt) = 0;
  virtual Task<> write(std::span<const std::byte> bytes) = 0;
  virtual Task<> finish() = 0;
  virtual bool started() const = 0;
  virtual void abort() = 0;  // cuts the connection (RST where possible)
  // Returns when the client is gone; for whatever waits. Only after the body was read. A client that has closed its sending side
  // still reads (RFC 9293, section 3.6), and one that has closed both looks the same over TCP until something is sent to it: so
  // either is gone when it resets or hangs up, or half_closed_timeout after the last byte that was sent. Over TLS, and where the
  // request asks for another protocol, the end of what it sends is the end.
  virtual asio::awaitable<void> disconnected() = 0;
  // Takes the socket and what was read beyond the head, for upgrades. The exchange is over afterwards.
  struct Detached {
    Fd socket;
    std::string surplus;
  };
  virtual Result<Detached> detach() = 0;  // not over TLS
  // Answers 101 with these fields and `protocol`; from there on the connection carries bytes, over TLS too. Only for a request
  // without a body that asked for it.
  virtual Task<std::unique_ptr<ByteStream>> upgrade(std::string protocol, Headers headers) = 0;
};

// The protocol of "Connection: upgrade" and one "Upgrade" field, in lower case; "" when nothing is asked for or it is unclear.
std::string wanted_upgrade(const Exchange& exchange);

// Runs `work` and cancels it when the client goes away: for long waits and event streams. After the body was read.
Task<> until_disconnected(Exchange& exchange, Task<> work);

using Handler = std::function<Task<>(Exchange&)>;

struct Options {
  std::size_t max_header_bytes = 32 << 10;
  std::size_t max_header_fields = 100;
  std::chrono::milliseconds head_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};  // for each piece, up or down
  std::chrono::milliseconds idle_timeout{75'000};
  // A client that has closed its sending side is served while no more than this passes between two bytes of its answer. Event streams
  // beat more often; of a client that is gone altogether nothing else tells before something is sent to it.
  std::chrono::milliseconds half_closed_timeout{20'000};
  // Above that the connection that waits longest for a request, or for the rest of an answered one, is cut, and else a newcomer refused.
  std::size_t max_connections = 4096;
  std::string server_name = "space";
  bool any_target = false;  // requests whose target is none of ours reach the handler as well (Target::refused)
};

class Server {
 public:
  // `handler` is usually a Router. `executor` is the role's loop.
  Server(asio::any_io_executor executor, Handler handler, Options options = {});
  ~Server();
  // Takes a bound, listening socket (TCP or Unix; base/unix_socket.h, listen_tcp). May be called for several.
  Result<> serve(Fd listener, std::shared_ptr<TlsContext> tls = nullptr);
  // Stops accepting, lets running exchanges end for `grace`, then cuts them.
  asio::awaitable<void> stop(std::chrono::milliseconds grace);
  std::size_t connections() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A listening TCP socket; port 0 picks a free one (local_port tells). `address` is an IP literal.
Result<Fd> listen_tcp(const std::string& address, std::uint16_t port);
Result<std::uint16_t> local_port(const Fd& listener);

}  // namespace space::http
