// The Connect protocol (connectrpc.com/docs/protocol), as far as E2B's clients speak it: unary calls, server streams and one client
// stream, with JSON messages, and with protobuf ones where a client asks for them (envd_proto.h). A message in a stream is an
// envelope: one byte of flags, four bytes of length (big endian), the message.
// Everything that a client sends is bounded here; compression is refused, and never used for answers. For the loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/envd_proto.h"
#include "base/json.h"
#include "http/router.h"

namespace space::agent::connect {

inline constexpr std::size_t kMostMessage = 8 << 20;  // bytes of JSON in a request: standard input comes in such messages

struct Envelope {
  std::string payload;
  bool last = false;  // the end of the stream, flag 0x02
};
std::string envelope(std::string_view json, bool last = false);

// Takes bytes as they come. Unknown flags, compressed or oversized messages: invalid_argument, for ever.
class EnvelopeReader {
 public:
  explicit EnvelopeReader(std::size_t limit = kMostMessage) : limit_(limit) {}
  Result<std::vector<Envelope>> feed(std::string_view bytes);
  bool between() const { return pending_.empty(); }  // no part of a message waits for its rest

 private:
  std::size_t limit_;
  std::string pending_;
  bool failed_ = false;
};

// Connect's name for an error, and the HTTP status of a unary call that fails with it. An Error whose `code` is itself such a
// name ("already_exists", "failed_precondition", "unknown", …) keeps it; else its kind decides.
std::string_view code_of(const Error& error);
int status_of(std::string_view code);
std::string error_json(const Error& error);  // {"code","message"}

// Answers of a server stream. `end` is sent once, by whoever runs the handler.
class StreamWriter {
 public:
  // `proto`: the answers' message where the client speaks protobuf, else nullptr.
  explicit StreamWriter(http::Exchange& exchange, const proto::Message* proto = nullptr) : exchange_(exchange), proto_(proto) {}
  void add(std::string_view json);  // to what the next flush sends
  Task<> flush();
  Task<> send(const json::object& message);
  Task<> end(const std::optional<Error>& error);

 private:
  Task<> start();
  http::Exchange& exchange_;
  const proto::Message* proto_;
  std::string waiting_;
};

// A message of a request's stream, by the codec that its content type names. invalid_argument.
Result<json::object> read_message(const http::Exchange& exchange, std::string_view payload);

// The routes of one method. The handler's error becomes the call's; what it is given lives as long as the call.
using Unary = std::function<Task<json::object>(http::Exchange&, const json::object& request)>;
using ServerStream = std::function<Task<>(http::Exchange&, const json::object& request, StreamWriter& answers)>;
using ClientStream = std::function<Task<json::object>(http::Exchange&)>;  // reads the body itself
void add_unary(http::Router& router, std::string_view path, Unary handler);
void add_server_stream(http::Router& router, std::string_view path, ServerStream handler);
void add_client_stream(http::Router& router, std::string_view path, ClientStream handler);

}  // namespace space::agent::connect
