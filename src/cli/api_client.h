// A client of the public API. It adds the key to every request and an Idempotency-Key to everything that changes something, so
// that a request whose answer was lost can be sent again. Belongs to one loop.
//
// Values stay JSON: the CLI hands most of them on as they are. `text_of` and its like read single fields without trust.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "base/json.h"
#include "cli/connection.h"
#include "http/client.h"
#include "http/sse.h"

namespace space::cli {

class EventStream;

class ApiClient {
 public:
  // Fails only when TLS is asked for and the trusted certificates cannot be read.
  static Result<std::unique_ptr<ApiClient>> make(asio::any_io_executor executor, Connection connection);
  ~ApiClient();

  Task<json::object> get(std::string target);
  // POST or DELETE. Sent again, for some seconds, when the connection ends before the answer. `wait` asks the server to answer when the
  // operation is over (Prefer: wait), at the latest after that time.
  Task<json::object> send(std::string method, std::string target, std::optional<json::object> body = std::nullopt,
                          std::chrono::seconds wait = std::chrono::seconds(0));
  // Waits until an operation is over and returns it; one that failed or was cancelled becomes its error. Goes over a restart of
  // the server.
  Task<json::object> finish(std::string operation);
  // Raw bytes in the body.
  Task<> send_bytes(std::string method, std::string target, std::string bytes);
  // Bodies and answers that are streamed (files).
  Task<std::unique_ptr<http::ClientStream>> open(std::string method, std::string target, http::BodyKind body = http::BodyKind::none,
                                                 std::uint64_t length = 0);
  // A list over all its pages: the items under `name`. `first` is given what else is on the first page, and outlives the call.
  Task<json::array> list(std::string target, std::string name, json::object* first = nullptr);

  const Connection& connection() const { return connection_; }

 private:
  friend class EventStream;
  ApiClient(asio::any_io_executor executor, Connection connection, std::shared_ptr<http::TlsClientContext> tls);
  http::Request request(std::string method, std::string target) const;
  Task<http::Response> send_again(http::Request request);  // of what may be asked twice: a GET, or with an Idempotency-Key
  Error explain(Error error) const;                        // adds where we tried to connect
  Connection connection_;
  std::unique_ptr<http::Client> client_;
  bool reached_ = false;  // the server has answered, or taken a request, before: when it does not now, it will again
};

// "/v1/sandboxes/ID/files/content?path=%2Fx": segments and values are escaped, so names of any bytes are safe.
class TargetBuilder {
 public:
  explicit TargetBuilder(std::string_view start) : text_(start) {}
  TargetBuilder& segment(std::string_view value);
  TargetBuilder& query(std::string_view name, std::string_view value);
  TargetBuilder& query_if(std::string_view name, std::string_view value);  // not when empty
  std::string str() const { return text_; }

 private:
  std::string text_;
  bool has_query_ = false;
};

std::string text_of(const json::object& object, std::string_view name);  // "" unless it is a string
std::int64_t number_of(const json::object& object, std::string_view name, std::int64_t absent = 0);
const json::object* object_of(const json::object& object, std::string_view name);
const json::array* array_of(const json::object& object, std::string_view name);

}  // namespace space::cli
