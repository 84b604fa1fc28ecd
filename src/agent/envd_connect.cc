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
constexpr std::string_view kUnaryProto = "application/proto", kStreamProto = "application/connect+proto";

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

// What the client speaks: JSON, or protobuf with the messages of the method.
struct Codec {
  std::string_view type;
  const proto::Message *request = nullptr, *answer = nullptr;
};

std::string_view media_type(const http::Exchange& exchange) {
  const std::string_view type = exchange.headers().get("Content-Type");
  std::string_view name = type.substr(0, type.find(';'));
  while (name.ends_with(' ')) name.remove_suffix(1);
  return name;
}

std::optional<Codec> codec_of(const http::Exchange& exchange, bool streamed) {
  const std::string_view type = media_type(exchange);
  if (http::equal_no_case(type, streamed ? kStreamType : kUnaryType)) return Codec{streamed ? kStreamType : kUnaryType, nullptr, nullptr};
  if (!http::equal_no_case(type, streamed ? kStreamProto : kUnaryProto)) return std::nullopt;
  const std::string_view raw = exchange.target().raw, path = raw.substr(0, raw.find('?'));
  const proto::Message* request = proto::request_of(path);
  if (!request) return std::nullopt;
  return Codec{streamed ? kStreamProto : kUnaryProto, request, proto::answer_of(path)};
}

// Connect's answer to a codec that is not spoken here: the client then says so, and no handler ran.
Task<> refuse_type(http::Exchange& exchange, bool streamed) {
  http::Response response;
  response.status = 415;
  response.headers.set("Accept-Post",
                       streamed ? fmt::format("{}, {}", kStreamType, kStreamProto) : fmt::format("{}, {}", kUnaryType, kUnaryProto));
  co_return co_await exchange.reply(std::move(response));
}

Result<json::object> message(const Codec& codec, std::string_view text) {
  if (codec.request) return proto::decode(*codec.request, text);
  return parse_json_object(text.empty() ? "{}" : text, kMostMessage);
}

Task<json::object> call(http::Exchange& exchange, const Codec& codec, const Unary& handler) {
  CO_TRY(const std::string body, co_await exchange.read_body(kMostMessage));
  CO_TRY(const json::object request, message(codec, body));
  co_return co_await handler(exchange, request);
}

Task<> run_unary(http::Exchange& exchange, const Unary& handler) {
  const auto codec = codec_of(exchange, false);
  if (!codec) co_return co_await refuse_type(exchange, false);
  const auto answer = co_await call(exchange, *codec, handler);
  http::Response response =
      http::json_response(answer ? 200 : status_of(code_of(answer.error())), answer ? std::string() : error_json(answer.error()));
  if (answer) response.body = codec->answer ? proto::encode(*codec->answer, *answer) : json::serialize(*answer);
  if (answer) response.headers.set("Content-Type", std::string(codec->type));
  co_return co_await exchange.reply(std::move(response));
}

Task<json::object> only_message(http::Exchange& exchange, const Codec& codec) {
  CO_TRY(const std::string body, co_await exchange.read_body(kMostMessage + kHead));
  EnvelopeReader reader;
  CO_TRY(const std::vector<Envelope> messages, reader.feed(body));
  if (messages.empty() || messages[0].last || messages.size() > 2 || (messages.size() == 2 && !messages[1].last) || !reader.between())
    co_return fail(ErrorKind::invalid_argument, "invalid_argument", "the request of a server stream is one message");
  co_return message(codec, messages[0].payload);
}

Task<> stream(http::Exchange& exchange, const Codec& codec, const ServerStream& handler, StreamWriter& writer) {
  CO_TRY(const json::object request, co_await only_message(exchange, codec));
  co_return co_await http::until_disconnected(exchange, handler(exchange, request, writer));
}

Task<> run_server_stream(http::Exchange& exchange, const ServerStream& handler) {
  const auto codec = codec_of(exchange, true);
  if (!codec) co_return co_await refuse_type(exchange, true);
  StreamWriter writer(exchange, codec->answer);
  const auto done = co_await stream(exchange, *codec, handler, writer);
  if (!done && done.error().kind == ErrorKind::cancelled) co_return done;  // nobody listens any more
  std::optional<Error> error;
  if (!done) error = done.error();
  co_return co_await writer.end(error);
}

Task<> run_client_stream(http::Exchange& exchange, const ClientStream& handler) {
  const auto codec = codec_of(exchange, true);
  if (!codec) co_return co_await refuse_type(exchange, true);
  const auto answer = co_await handler(exchange);
  StreamWriter writer(exchange, codec->answer);
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
    case ErrorKind::invalid_argument:
      return "invalid_argument";
    case ErrorKind::unauthenticated:
      return "unauthenticated";
    case ErrorKind::permission_denied:
      return "permission_denied";
    case ErrorKind::not_found:
    case ErrorKind::gone:
      return "not_found";
    case ErrorKind::conflict:
      return "failed_precondition";
    case ErrorKind::too_large:
      return "invalid_argument";
    case ErrorKind::unsupported:
      return "unimplemented";
    case ErrorKind::resource_exhausted:
    case ErrorKind::insufficient_storage:
      return "resource_exhausted";
    case ErrorKind::unavailable:
      return "unavailable";
    case ErrorKind::deadline_exceeded:
      return "deadline_exceeded";
    case ErrorKind::cancelled:
      return "canceled";
    case ErrorKind::corrupt:
      return "data_loss";
    case ErrorKind::internal:
      break;
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

void StreamWriter::add(std::string_view json) {
  if (!proto_) {
    waiting_ += envelope(json);
    return;
  }
  const auto object = parse_json_object(json, kMostMessage);  // a handler's own
  waiting_ += envelope(object ? proto::encode(*proto_, *object) : std::string());
}

Task<> StreamWriter::start() {
  if (exchange_.started()) co_return Result<>();
  http::Headers headers{{"Content-Type", std::string(proto_ ? kStreamProto : kStreamType)}};
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

Result<json::object> read_message(const http::Exchange& exchange, std::string_view payload) {
  const auto codec = codec_of(exchange, true);
  if (!codec) return fail(ErrorKind::invalid_argument, "invalid_argument", "the stream has a content type that is not spoken here");
  return message(*codec, payload);
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
