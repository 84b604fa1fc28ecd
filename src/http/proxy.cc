#include "http/proxy.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <memory>

#include "http/head.h"

namespace space::http {
namespace {

constexpr std::size_t kPiece = 128 << 10;
constexpr std::size_t kLongestProblem = 2048;

tl::unexpected<Error> client_gone() { return fail(ErrorKind::cancelled, "client_gone", "the client closed the connection"); }

struct Piece {
  std::unique_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  std::span<std::byte> room() { return {bytes.get(), kPiece}; }
};

// What `Connection` lists is between us and this neighbour alone (RFC 9110, section 7.6.1).
Headers end_to_end(const Headers& headers) {
  Headers kept;
  for (const auto& [name, value] : headers.fields()) {
    bool listed = false;
    for (const auto& [other, list] : headers.fields()) listed = listed || (equal_no_case(other, "Connection") && lists_token(list, name));
    if (!listed && !is_hop_by_hop(name)) kept.add(name, value);
  }
  return kept;
}

std::string websocket_wanted(const Exchange& exchange) {
  std::string protocol = exchange.method() == "GET" ? wanted_upgrade(exchange) : "";
  return protocol == "websocket" ? protocol : "";
}

Request request_for(const Exchange& exchange, const ProxyOptions& options) {
  Request request;
  request.method = exchange.method();
  request.target = options.target;
  request.headers = end_to_end(exchange.headers());
  for (const char* own : {"Host", "Expect"}) request.headers.remove(own);
  if (options.upgrade) request.upgrade = websocket_wanted(exchange);
  for (const std::string& name : options.drop_headers) request.headers.remove(name);
  if (!options.drop_prefix.empty()) request.headers.remove_starting_with(options.drop_prefix);
  for (const auto& [name, value] : options.set_headers.fields()) request.headers.remove(name);
  for (const auto& [name, value] : options.set_headers.fields()) request.headers.add(name, value);
  return request;
}

Headers answer_headers(const Headers& headers, const ProxyOptions& options) {
  const Headers given = end_to_end(headers);
  Headers kept;
  for (const auto& [name, value] : given.fields()) {
    const bool wanted =
        options.answer_headers.empty() || std::any_of(options.answer_headers.begin(), options.answer_headers.end(),
                                                      [&name = name](const std::string& one) { return equal_no_case(one, name); });
    if (wanted && !equal_no_case(name, "Date") && !equal_no_case(name, "Server")) kept.add(name, value);
  }
  return kept;
}

// Carries the request's body, then watches the client. Returns only when the client's side failed: an upstream that takes no
// more bytes may have answered already, and the answer's side finds out.
Task<> carry_request(Exchange& exchange, ClientStream& upstream) {
  bool upstream_takes = true;
  if (exchange.has_body()) {
    Piece piece;
    while (upstream_takes) {
      CO_TRY(const std::size_t n, co_await exchange.read(piece.room()));
      if (n == 0) break;
      const auto written = co_await upstream.write(piece.room().first(n));
      upstream_takes = written.has_value();
    }
  }
  if (upstream_takes) co_await upstream.finish_request();
  co_await exchange.disconnected();
  co_return client_gone();
}

Task<> carry_upgrade(Exchange& exchange, ClientStream& upstream, const Response& response, std::string protocol) {
  if (protocol.empty() || !equal_no_case(response.headers.get("Upgrade"), protocol))
    co_return fail(ErrorKind::unavailable, "bad_answer", "the other end switched protocols without being asked");
  Headers headers = end_to_end(response.headers);
  CO_TRY(const auto near, co_await exchange.upgrade(std::move(protocol), std::move(headers)));
  const auto far = upstream.upgraded();
  co_await splice(*near, *far);
  co_return Result<>();
}

Task<> carry_body(Exchange& exchange, ClientStream& upstream, const Response& response, const ProxyOptions& options) {
  const bool is_problem = options.other_words && response.headers.get("Content-Type") == "application/problem+json";
  if (is_problem && upstream.content_length().value_or(kLongestProblem + 1) <= kLongestProblem) {
    Response whole = response;
    CO_TRY(whole.body, co_await upstream.read_all(kLongestProblem));
    if (auto other = options.other_words(whole)) co_return co_await exchange.reply(std::move(*other));
    whole.headers = answer_headers(response.headers, options);
    co_return co_await exchange.reply(std::move(whole));
  }
  if (options.event_stream) upstream.set_body_timeout(std::chrono::milliseconds(0));
  Headers headers = answer_headers(response.headers, options);
  CO_TRY_VOID(co_await exchange.start(response.status, std::move(headers), upstream.content_length()));
  Piece piece;
  for (;;) {
    CO_TRY(const std::size_t n, co_await upstream.read(piece.room()));
    if (n == 0) break;
    CO_TRY_VOID(co_await exchange.write(piece.room().first(n)));
  }
  co_return co_await exchange.finish();
}

Task<> carry_answer(Exchange& exchange, ClientStream& upstream, const ProxyOptions& options) {
  CO_TRY(const Response response, co_await upstream.head());
  if (response.status < 200) co_return fail(ErrorKind::unavailable, "bad_answer", "the other end switched protocols without being asked");
  co_return co_await carry_body(exchange, upstream, response, options);
}

}  // namespace

void say_who_asks(const Exchange& exchange, ProxyOptions& options) {
  for (const char* name : {"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "Via"})
    options.drop_headers.emplace_back(name);
  options.set_headers.set("X-Forwarded-For", exchange.peer().address.empty() ? "unknown" : exchange.peer().address);
  options.set_headers.set("X-Forwarded-Host", std::string(exchange.headers().get("Host")));
}

Task<> forward(Exchange& exchange, Client& client, ProxyOptions options) {
  using namespace asio::experimental::awaitable_operators;
  const BodyKind kind = !exchange.has_body() ? BodyKind::none : exchange.content_length() ? BodyKind::sized : BodyKind::chunked;
  const std::uint64_t length = exchange.content_length().value_or(0);
  Request request = request_for(exchange, options);
  std::string protocol = request.upgrade;
  CO_TRY(const auto upstream, co_await client.open(std::move(request), kind, length));
  if (options.slow_body) {
    exchange.set_read_timeout(std::chrono::milliseconds(0));
    upstream->set_body_timeout(std::chrono::milliseconds(0));
  }
  if (!protocol.empty()) {
    // What the client sends ahead stays in its connection's buffer.
    auto answered = co_await (upstream->head() || exchange.disconnected());
    if (answered.index() == 1) co_return client_gone();
    CO_TRY(const Response response, std::get<0>(std::move(answered)));
    if (response.status == 101) co_return co_await carry_upgrade(exchange, *upstream, response, std::move(protocol));
    co_return co_await until_disconnected(exchange, carry_body(exchange, *upstream, response, options));
  }
  // The first to end decides, and takes the other with it: the answer is complete (or cannot be), or the client is gone.
  // Whatever `upstream` has not finished by then is cut with it.
  auto first = co_await (carry_answer(exchange, *upstream, options) || carry_request(exchange, *upstream));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return std::get<1>(std::move(first));
}

}  // namespace space::http
