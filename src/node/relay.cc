#include "node/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "base/json.h"
#include "node/guest_error.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kJsonAnswer = 4 << 20;  // a folder of some 15,000 names; the rest by `after`
constexpr std::size_t kJsonRequest = 64 << 10;
constexpr milliseconds kJsonLimit = seconds(60);  // removing or listing a large tree takes its time
constexpr milliseconds kSilence = seconds(30);    // of an agent that should be sending

using Stream = std::unique_ptr<http::ClientStream>;

// The answer's error, read out of its body; the status is the guest's word, so only the error classes we know come through.
Task<> refuse(http::ClientStream& stream, int status, std::string doing) {
  stream.set_body_timeout(kSilence);
  auto body = co_await stream.read_all(kErrorAnswer);
  if (!body) co_return fail(guest_error(body.error(), doing));
  co_return fail(guest_error(http::error_from_response(status, *body), doing));
}

Result<std::string> checked_json(std::string_view body, const std::string& doing) {
  auto value = parse_json(body.empty() ? "{}" : body, kJsonAnswer);
  if (!value) return fail(agent_not_answering(doing, value.error().message));
  return json::serialize(*value);
}

// "bytes 0-99/1234" with numbers alone, else nothing.
bool is_content_range(std::string_view text) {
  return text.starts_with("bytes ") && text.size() < 80 &&
         std::all_of(text.begin() + 6, text.end(), [](char c) { return (c >= '0' && c <= '9') || c == '-' || c == '/' || c == '*'; });
}

bool is_range(std::string_view text) {
  return text.starts_with("bytes=") && text.size() < 80 &&
         std::all_of(text.begin() + 6, text.end(), [](char c) { return (c >= '0' && c <= '9') || c == '-'; });
}

Task<Stream> open_stream(std::shared_ptr<Sandbox> sandbox, http::Request request, http::BodyKind kind, std::uint64_t length,
                         std::string doing) {
  CO_TRY(const auto agent, sandbox->agent());
  co_return co_await ask_agent(sandbox->machine, agent->http().open(std::move(request), kind, length), seconds(15), doing);
}

}  // namespace

Result<> AgentTarget::copy(const http::Exchange& exchange, const std::vector<std::string_view>& allowed) {
  std::vector<std::string_view> seen;
  for (const auto& [name, value] : exchange.target().query) {
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end() || std::find(seen.begin(), seen.end(), name) != seen.end())
      return fail(ErrorKind::invalid_argument, "unknown_parameter",
                  fmt::format("the parameter {} is not known here, or given twice", printable(name, 64)),
                  "see the request's parameters in /openapi.json");
    if (value.find('\0') != std::string::npos)
      return fail(ErrorKind::invalid_argument, "invalid_field", fmt::format("{} must not hold NUL", name), "see /openapi.json");
    seen.push_back(name);
    text_ += fmt::format("{}{}={}", has_query_ ? '&' : '?', name, percent_encode(value));
    has_query_ = true;
  }
  return {};
}

Task<> relay_up(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::string method, AgentTarget target, std::string doing) {
  http::Request request;
  request.method = std::move(method);
  request.target = target.text();
  request.headers.set("Content-Type", "application/octet-stream");
  const auto length = exchange.content_length();
  const http::BodyKind kind = length ? http::BodyKind::sized : exchange.has_body() ? http::BodyKind::chunked : http::BodyKind::none;
  CO_TRY(const Stream stream, co_await open_stream(sandbox, std::move(request), kind, length.value_or(0), doing));
  Result<> sent;
  if (kind != http::BodyKind::none) {
    std::vector<std::byte> piece(kPiece);
    for (;;) {
      CO_TRY(const std::size_t size, co_await exchange.read(piece));
      if (size == 0) break;
      sent = co_await stream->write(std::span(piece).first(size));
      if (!sent) break;  // it may have said why before it stopped listening
    }
  }
  if (sent) sent = co_await stream->finish_request();
  auto head = co_await stream->head();
  if (!head) co_return fail(guest_error(sent ? head.error() : sent.error(), doing));
  if (head->status < 200 || head->status > 299) co_return co_await refuse(*stream, head->status, doing);
  auto body = co_await stream->read_all(kErrorAnswer);
  if (!body) co_return fail(guest_error(body.error(), doing));
  CO_TRY(std::string answer, checked_json(*body, doing));
  co_return co_await exchange.reply(http::json_response(head->status == 201 ? 201 : 200, std::move(answer)));
}

Task<> relay_down(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, AgentTarget target, std::string doing) {
  http::Request request;
  request.method = exchange.method();
  request.target = target.text();
  if (const auto range = exchange.headers().get("Range"); is_range(range)) request.headers.set("Range", std::string(range));
  CO_TRY(const Stream stream, co_await open_stream(sandbox, std::move(request), http::BodyKind::none, 0, doing));
  auto head = co_await ask_agent(sandbox->machine, stream->head(), kSilence, doing);
  if (!head) co_return fail(std::move(head).error());
  if (head->status != 200 && head->status != 206) co_return co_await refuse(*stream, head->status, doing);
  http::Headers headers{{"Content-Type", "application/octet-stream"}, {"X-Content-Type-Options", "nosniff"}, {"Accept-Ranges", "bytes"}};
  if (const auto range = head->headers.get("Content-Range"); head->status == 206 && is_content_range(range))
    headers.set("Content-Range", std::string(range));
  const auto length = stream->content_length();
  CO_TRY_VOID(co_await exchange.start(head->status, std::move(headers), length));
  if (exchange.method() != "HEAD") {
    stream->set_body_timeout(kSilence);
    std::vector<std::byte> piece(kPiece);
    for (;;) {
      auto size = co_await stream->read(piece);
      if (!size) co_return fail(guest_error(size.error(), doing));
      if (*size == 0) break;
      CO_TRY_VOID(co_await exchange.write(std::span(piece).first(*size)));
    }
  }
  co_return co_await exchange.finish();
}

Task<> relay_json(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::string method, AgentTarget target, std::string doing) {
  http::Request request;
  request.method = std::move(method);
  request.target = target.text();
  if (exchange.has_body()) {
    CO_TRY(request.body, co_await exchange.read_body(kJsonRequest));
    CO_TRY_VOID(parse_json_object(request.body, kJsonRequest));
    request.headers.set("Content-Type", "application/json");
  }
  CO_TRY(const auto agent, sandbox->agent());
  CO_TRY(const http::Response answer,
         co_await ask_agent(sandbox->machine, agent->http().call(std::move(request), kJsonAnswer), kJsonLimit, doing));
  CO_TRY(std::string body, checked_json(answer.body, doing));
  co_return co_await exchange.reply(http::json_response(answer.status == 201 ? 201 : 200, std::move(body)));
}

}  // namespace space::node
