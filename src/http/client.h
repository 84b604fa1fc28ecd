// An HTTP/1.1 client for our own roles, the agent and the CLI. Answers are hostile input: bounded heads, bodies and times.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/async.h"
#include "base/fd.h"
#include "http/byte_stream.h"
#include "http/message.h"

namespace space::http {

class ClientPool;
class TlsClientContext;  // http/tls.h

// Gives a connected stream socket for a new connection.
using Connector = std::function<Task<Fd>()>;
Connector unix_connector(std::string path);
Connector tcp_connector(std::string host, std::uint16_t port);  // host: name or address; resolved off the loop

struct ClientOptions {
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds head_timeout{60'000};  // from the request's last byte to the answer's head
  std::chrono::milliseconds body_timeout{60'000};  // for each piece
  std::size_t max_idle = 8;                        // connections kept for the next request
  std::chrono::milliseconds idle_time{30'000};
  std::size_t max_header_bytes = 64 << 10;
  std::shared_ptr<TlsClientContext> tls;  // nullptr: plain
  std::string host = "localhost";         // Host header and, with TLS, the name to verify
};

// A request under way. Destroying it before the end closes its connection. Uses: write* → finish_request → head → read*.
class ClientStream {
 public:
  virtual ~ClientStream() = default;
  virtual Task<> write(std::span<const std::byte> bytes) = 0;  // only when opened with a body
  virtual Task<> finish_request() = 0;
  virtual Task<Response> head() = 0;  // status and headers, empty body; 1xx are skipped
  virtual std::optional<std::uint64_t> content_length() const = 0;
  virtual Task<std::size_t> read(std::span<std::byte> into) = 0;      // 0 at the end; a cut-off body is an error
  virtual void cancel() = 0;                                          // every pending call ends with `cancelled`; from the same loop
  virtual void set_body_timeout(std::chrono::milliseconds time) = 0;  // for event streams
  // After a head with status 101 to a request with `upgrade`: the connection as bytes, while this lives.
  virtual std::unique_ptr<ByteStream> upgraded() = 0;
  Task<std::string> read_all(std::size_t limit);
};

enum class BodyKind { none, sized, chunked };

class Client {
 public:
  Client(asio::any_io_executor executor, Connector connector, ClientOptions options = {});
  ~Client();
  // Sends `request` with its body and reads the whole answer. A kept connection that the server had closed is replaced by a
  // new one when the method is idempotent or nothing was sent yet.
  Task<Response> request(Request request, std::size_t body_limit = 4 << 20);
  // As above, but an answer of 400 or more is turned into its Error.
  Task<Response> call(Request request, std::size_t body_limit = 4 << 20);
  // A request whose body or answer is streamed; `request.body` is ignored.
  Task<std::unique_ptr<ClientStream>> open(Request request, BodyKind body = BodyKind::none, std::uint64_t length = 0);
  void close_idle();  // after the other end was replaced (a load)

 private:
  std::shared_ptr<ClientPool> pool_;
};

}  // namespace space::http
