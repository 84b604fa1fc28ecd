#include "agent/envd_connect.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/encoding.h"

namespace space::agent::connect {
namespace {

constexpr std::size_t kHead = 5;
constexpr unsigned char kCompressed = 1, kEnd = 2;
constexpr std::string_view kUnaryType = "application/json", kStreamType = "application/connect+json";

struct Name {
  std::string_view code;
  int status;
};
constexpr std::array<Name, 16> kNames{{{"canceled", 499},
                                       {"unknown", 500},
                                       {"invalid_argument", 400},
                                       {"deadline_exceeded", 504},
                                       {"not_found", 404},
                                       {"already_exists", 409},
                                       {"permission_denied", 403},
                                       {"resource_exhausted", 429},
                                       {"failed_precondition", 400},
                                       {"aborted", 409},
                                       {"out_of_range", 400},
                                       {"unimplemented", 501},
                                       {"internal", 500},
                                       {"unavailable", 503},
                                       {"data_loss", 500},
                                       {"unauthenticated", 401}}};

bool is_type(const http::Exchange& exchange, std::string_view wanted) {
  const std::string_view type = exchange.headers().get("Content-Type");
  std::string_view name = type.substr(0, type.find(';'));
  while (name.ends_with(' ')) name.remove_suffix(1);
  return http::equal_no_case(name, wanted);
}

// Connect's answer to a codec that is not spoken here: the client then says so, and no handler ran.
Task<> refuse_type(http::Exchange& exchange, std::string_view wanted) {
  http::Response response;
  response.status = 415;
  response.headers.set("Accept-Post", std::string(wanted));
  co_return co_await exchange.reply(std::move(response));
}

Result<json::object> message(std::string_view text) { return parse_json_object(text.empty() ? "{}" : text, kMostMessage); }

Task<json::object> call(http::Exchange& exchange, const Unary& handler) {
  CO_TRY(const std::string body, co_await exchange.read_body(kMostMessage));
  CO_TRY(const json::object request, message(body));
  co_return co_await handler(exchange, request);
}

Task<> run_unary(http::Exchange& exchange, const Unary& handler) {
  if (!is_type(exchange, kUnaryType)) co_return co_await refuse_type(exchange, kUnaryType);
  const auto answer = co_await call(exchange, handler);
  http::Response response = http::json_response(answer ? 200 : status_of(code_of(answer.error())), answer ? json::serialize(*answer) : error_json(answer.error()));
  co_return co_await exchange.reply(std::move(response));
}

Task<json::object> only_message(http::Exchange& exchange) {
  CO_TRY(const std::string body, co_await exchange.read_body(kMostMessage + kHead));
  EnvelopeReader reader;
  CO_TRY(const std::vector<Envelope> messages, reader.feed(body));
  if (messages.empty() || messages[0].last || messages.size() > 2 || (messages.size() == 2 && !messages[1].last) || !reader.between())
    co_return fail(ErrorKind::invalid_argument, "invalid_argument", "the request of a server stream is one message");
  co_return message(messages[0].payload);
}

Task<> stream(http::Exchange& exchange, const ServerStream& handler, StreamWriter& writer) {
  CO_TRY(const json::object request, co_await only_message(exchange));
  co_return co_await http::until_disconnected(exchange, handler(exchange, request, writer));
}

Task<> run_server_stream(http::Exchange& exchange, const ServerStream& handler) {
  if (!is_type(exchange, kStreamType)) co_return co_await refuse_type(exchange, kStreamType);
  StreamWriter writer(exchange);
  const auto done = co_await stream(exchange, handler, writer);
  if (!done && done.error().kind == ErrorKind::cancelled) co_return done;  // nobody listens any more
  std::optional<Error> error;
  if (!done) error = done.error();
  co_return co_await writer.end(error);
}

Task<> run_client_stream(http::Exchange& exchange, const ClientStream& handler) {
  if (!is_type(exchange, kStreamType)) co_return co_await refuse_type(exchange, kStreamType);
  const auto answer = co_await handler(exchange);
  StreamWriter writer(exchange);
  std::optional<Error> error;
  if (answer)
    writer.add(json::serialize(*answer));
  else
    error = answer.error();
  co_return co_await writer.end(error);
}

}  // namespace

std::string envelope(std::string_view json, bool last) {
  std::string out(kHead, '\0');
  out[0] = static_cast<char>(last ? kEnd : 0);
  for (std::size_t i = 0; i < 4; ++i) out[4 - i] = static_cast<char>(json.size() >> (8 * i));
  out += json;
  return out;
}

Result<std::vector<Envelope>> EnvelopeReader::feed(std::string_view bytes) {
  const auto refuse = [this](std::string why) {
    failed_ = true;
    return fail(ErrorKind::invalid_argument, "invalid_argument", std::move(why));
  };
  if (failed_) return refuse("the stream was malformed before");
  pending_ += bytes;
  std::vector<Envelope> out;
  std::size_t at = 0;
  while (pending_.size() - at >= kHead) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(pending_[at + i]); };
    const unsigned flags = byte(0);
    if (flags & kCompressed) return refuse("compressed messages are not supported");
    if (flags & ~unsigned{kEnd}) return refuse("a message has unknown flags");
    const std::size_t length = std::size_t{byte(1)} << 24 | std::size_t{byte(2)} << 16 | std::size_t{byte(3)} << 8 | byte(4);
    if (length > limit_) return refuse(fmt::format("a message has more than {} bytes", limit_));
    if (pending_.size() - at - kHead < length) break;
    out.push_back({pending_.substr(at + kHead, length), (flags & kEnd) != 0});
    at += kHead + length;
  }
  pending_.erase(0, at);
  return out;
}

std::string_view code_of(const Error& error) {
  const auto named = std::find_if(kNames.begin(), kNames.end(), [&](const Name& name) { return name.code == error.code; });
  if (named != kNames.end()) return named->code;
  switch (error.kind) {
    case ErrorKind::invalid_argument: return "invalid_argument";
    case ErrorKind::unauthenticated: return "unauthenticated";
    case ErrorKind::permission_denied: return "permission_denied";
    case ErrorKind::not_found:
    case ErrorKind::gone: return "not_found";
    case ErrorKind::conflict: return "failed_precondition";
    case ErrorKind::too_large: return "invalid_argument";
    case ErrorKind::unsupported: return "unimplemented";
    case ErrorKind::resource_exhausted:
    case ErrorKind::insufficient_storage: return "resource_exhausted";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::deadline_exceeded: return "deadline_exceeded";
    case ErrorKind::cancelled: return "canceled";
    case ErrorKind::corrupt: return "data_loss";
    case ErrorKind::internal: break;
  }
  return "internal";
}

int status_of(std::string_view code) {
  const auto named = std::find_if(kNames.begin(), kNames.end(), [&](const Name& name) { return name.code == code; });
  return named == kNames.end() ? 500 : named->status;
}

std::string error_json(const Error& error) {
  const json::object body{{"code", code_of(error)}, {"message", error.message}};
  return json::serialize(body);
}

void StreamWriter::add(std::string_view json) { waiting_ += envelope(json); }

Task<> StreamWriter::start() {
  if (exchange_.started()) co_return Result<>();
  http::Headers headers{{"Content-Type", std::string(kStreamType)}};
  co_return co_await exchange_.start(200, std::move(headers));
}

Task<> StreamWriter::flush() {
  CO_TRY_VOID(co_await start());
  const std::string text = std::exchange(waiting_, {});
  co_return co_await exchange_.write(as_bytes(text));
}

Task<> StreamWriter::send(const json::object& message) {
  add(json::serialize(message));
  co_return co_await flush();
}

Task<> StreamWriter::end(const std::optional<Error>& error) {
  waiting_ += envelope(error ? fmt::format(R"({{"error":{}}})", error_json(*error)) : "{}", true);
  CO_TRY_VOID(co_await flush());
  co_return co_await exchange_.finish();
}

void add_unary(http::Router& router, std::string_view path, Unary handler) {
  router.add("POST", path, [handler = std::move(handler)](http::Exchange& x) { return run_unary(x, handler); });
}

void add_server_stream(http::Router& router, std::string_view path, ServerStream handler) {
  router.add("POST", path, [handler = std::move(handler)](http::Exchange& x) { return run_server_stream(x, handler); });
}

void add_client_stream(http::Router& router, std::string_view path, ClientStream handler) {
  router.add("POST", path, [handler = std::move(handler)](http::Exchange& x) { return run_client_stream(x, handler); });
}

}  // namespace space::agent::connect
