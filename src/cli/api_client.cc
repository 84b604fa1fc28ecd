#include "cli/api_client.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/random.h"
#include "http/tls.h"

namespace space::cli {
namespace {

constexpr std::size_t kAnswerLimit = 16 << 20;
constexpr int kLongestWait = 60;  // seconds that one request may wait for an operation

http::ClientOptions client_options(const Connection& connection, std::shared_ptr<http::TlsClientContext> tls) {
  http::ClientOptions options;
  options.head_timeout = std::chrono::seconds(kLongestWait + 30);
  options.tls = std::move(tls);
  options.host = connection.host.find(':') == std::string::npos ? connection.host : "[" + connection.host + "]";
  if (connection.port != (connection.tls ? 443 : 80)) options.host += fmt::format(":{}", connection.port);
  return options;
}

// The connection was there, and ended before the whole answer was here.
bool was_lost(const Error& error) { return error.code == "connection_lost" || error.code == "answer_cut_off"; }

Result<json::object> object_from(const http::Response& response) {
  if (response.body.empty()) return json::object();
  return parse_json_object(response.body, kAnswerLimit);
}

Error error_of(const json::object& operation) {
  const json::object* error = object_of(operation, "error");
  Error out{ErrorKind::internal, "operation_failed", fmt::format("the operation ended as {}", text_of(operation, "state")), ""};
  if (text_of(operation, "state") == "cancelled") out.kind = ErrorKind::cancelled, out.code = "operation_cancelled";
  if (!error) return out;
  out.code = text_of(*error, "code");
  out.message = text_of(*error, "detail");
  if (out.message.empty()) out.message = text_of(*error, "message");
  out.next = text_of(*error, "next");
  if (const auto status = number_of(*error, "status")) out.kind = error_kind_from_http(static_cast<int>(status));
  return out;
}

}  // namespace

Result<std::unique_ptr<ApiClient>> ApiClient::make(asio::any_io_executor executor, Connection connection) {
  std::shared_ptr<http::TlsClientContext> tls;
  if (connection.tls) {
    TRY(tls, http::TlsClientContext::make(connection.ca_file));
  }
  return std::unique_ptr<ApiClient>(new ApiClient(std::move(executor), std::move(connection), std::move(tls)));
}

ApiClient::ApiClient(asio::any_io_executor executor, Connection connection, std::shared_ptr<http::TlsClientContext> tls)
    : connection_(std::move(connection)),
      client_(std::make_unique<http::Client>(std::move(executor), http::tcp_connector(connection_.host, connection_.port),
                                             client_options(connection_, std::move(tls)))) {}

ApiClient::~ApiClient() = default;

http::Request ApiClient::request(std::string method, std::string target) const {
  http::Request out;
  out.method = std::move(method);
  out.target = std::move(target);
  out.headers.set("User-Agent", "space/" SPACE_VERSION);
  if (!connection_.key.empty()) out.headers.set("Authorization", "Bearer " + connection_.key);
  return out;
}

Error ApiClient::explain(Error error) const {
  if (error.kind == ErrorKind::unauthenticated && connection_.key.empty() && error.next.empty())
    error.next = "set SPACE_API_KEY or SPACE_KEY_FILE; the first key is in the server's data folder (first.key)";
  if (error.code == "connect_failed") {
    error.message = fmt::format("no server answers at {}: {}", connection_.url, error.message);
    error.next = "start one with `space serve`, or name yours with SPACE_URL";
  }
  return error;
}

Task<json::object> ApiClient::get(std::string target) {
  auto answer = co_await client_->call(request("GET", std::move(target)), kAnswerLimit);
  if (!answer) co_return fail(explain(answer.error()));
  reached_ = true;
  co_return object_from(*answer);
}

Task<json::object> ApiClient::send(std::string method, std::string target, std::optional<json::object> body, std::chrono::seconds wait) {
  http::Request out = request(std::move(method), std::move(target));
  out.headers.set("Idempotency-Key", new_id());
  if (wait.count() > 0) out.headers.set("Prefer", fmt::format("wait={}", std::min<std::int64_t>(wait.count(), kLongestWait)));
  if (body) {
    out.headers.set("Content-Type", "application/json");
    out.body = json::serialize(*body);
  }
  CO_TRY(const http::Response answer, co_await send_again(std::move(out)));
  co_return object_from(answer);
}

// The Idempotency-Key makes another try harmless; it takes us over a restart of the server. One that was never reached is not
// waited for. One that went away with our first request, however, may have taken it: only another try tells what became of it.
Task<http::Response> ApiClient::send_again(http::Request request) {
  constexpr int kTries = 7;  // 12 s
  for (int tries = 1;; ++tries) {
    auto answer = co_await client_->call(request, kAnswerLimit);
    if (answer || was_lost(answer.error())) reached_ = true;
    const bool again = !answer && reached_ && tries < kTries &&
                       (answer.error().kind == ErrorKind::unavailable || (tries > 1 && answer.error().code == "idempotency_in_flight"));
    if (!answer && !again) co_return fail(explain(answer.error()));
    if (answer) co_return answer;
    co_await sleep_for(std::chrono::milliseconds(100 << tries));
  }
}

Task<json::object> ApiClient::finish(std::string operation) {
  const std::string target = TargetBuilder("/v1/operations").segment(operation).query("wait", std::to_string(kLongestWait)).str();
  for (;;) {
    CO_TRY(const http::Response answer, co_await send_again(request("GET", target)));  // the server goes on with it after a restart
    CO_TRY(json::object now, object_from(answer));
    const std::string state = text_of(now, "state");
    if (state == "succeeded") co_return now;
    if (state != "pending" && state != "running") co_return fail(error_of(now));
  }
}

Task<> ApiClient::send_bytes(std::string method, std::string target, std::string bytes) {
  http::Request out = request(std::move(method), std::move(target));
  out.headers.set("Content-Type", "application/octet-stream");
  out.headers.set("Idempotency-Key", new_id());
  out.body = std::move(bytes);
  CO_TRY_VOID(co_await send_again(std::move(out)));
  co_return Result<>();
}

Task<std::unique_ptr<http::ClientStream>> ApiClient::open(std::string method, std::string target, http::BodyKind body,
                                                          std::uint64_t length) {
  http::Request out = request(std::move(method), std::move(target));
  if (body != http::BodyKind::none) out.headers.set("Content-Type", "application/octet-stream");
  auto stream = co_await client_->open(std::move(out), body, length);
  if (!stream) co_return fail(explain(stream.error()));
  co_return stream;
}

Task<json::array> ApiClient::list(std::string target, std::string name, json::object* first) {
  json::array all;
  std::string after;
  do {
    std::string page = target;
    if (!after.empty()) page += fmt::format("{}after={}", page.find('?') == std::string::npos ? '?' : '&', percent_encode(after));
    auto answer = co_await get(std::move(page));
    if (!answer) co_return tl::unexpected(answer.error());
    if (const json::array* items = array_of(*answer, name))
      for (const json::value& item : *items) all.push_back(item);
    const std::string next = text_of(*answer, "next");
    if (first && after.empty()) *first = *answer;
    if (next == after && !next.empty()) co_return fail(ErrorKind::internal, "endless_list", "the server gave the same page twice");
    after = next;
  } while (!after.empty());
  co_return all;
}

TargetBuilder& TargetBuilder::segment(std::string_view value) {
  text_ += '/';
  text_ += percent_encode(value);
  return *this;
}

TargetBuilder& TargetBuilder::query(std::string_view name, std::string_view value) {
  text_ += has_query_ ? '&' : '?';
  has_query_ = true;
  text_ += percent_encode(name);
  text_ += '=';
  text_ += percent_encode(value);
  return *this;
}

TargetBuilder& TargetBuilder::query_if(std::string_view name, std::string_view value) { return value.empty() ? *this : query(name, value); }

std::string text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::int64_t number_of(const json::object& object, std::string_view name, std::int64_t absent) {
  const json::value* value = object.if_contains(name);
  if (value && value->is_int64()) return value->get_int64();
  if (value && value->is_uint64()) return static_cast<std::int64_t>(value->get_uint64());
  return absent;
}

const json::object* object_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value ? value->if_object() : nullptr;
}

const json::array* array_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value ? value->if_array() : nullptr;
}

}  // namespace space::cli
