#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <cctype>
#include <cstdlib>
#include <fmt/format.h>

#include "base/log.h"
#include "http/head.h"
#include "http/server.h"

namespace space::http {

const std::string& Exchange::param(std::string_view name) const {
  const auto found = params.find(name);
  if (found == params.end()) {
    log::error("http.unknown_param", {{"name", name}});
    std::abort();
  }
  return found->second;
}

Task<std::string> Exchange::read_body(std::size_t limit) {
  const auto too_large = [limit] {
    return fail(ErrorKind::too_large, "body_too_large", fmt::format("the request body has more than {} bytes", limit),
                "send a smaller body");
  };
  // Said before the first read, so that a client that waits for "100 Continue" never sends it.
  if (content_length().value_or(0) > limit) co_return too_large();
  std::string body;
  std::size_t used = 0;
  for (;;) {
    if (used == body.size()) body.resize(std::min(limit + 1, std::max<std::size_t>(16 << 10, body.size() * 2)));
    const std::span<std::byte> room(reinterpret_cast<std::byte*>(body.data()) + used, body.size() - used);
    CO_TRY(const std::size_t got, co_await read(room));
    if (got == 0) break;
    used += got;
    if (used > limit) co_return too_large();
  }
  body.resize(used);
  co_return body;
}

std::string wanted_upgrade(const Exchange& exchange) {
  const Headers& headers = exchange.headers();
  if (headers.count("Connection") != 1 || headers.count("Upgrade") != 1 || exchange.has_body()) return {};
  if (!lists_token(headers.get("Connection"), "upgrade")) return {};
  std::string protocol(headers.get("Upgrade"));
  const bool one = !protocol.empty() && std::all_of(protocol.begin(), protocol.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '/';
  });
  if (!one) return {};
  std::transform(protocol.begin(), protocol.end(), protocol.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return protocol;
}

Task<> until_disconnected(Exchange& exchange, Task<> work) {
  using namespace asio::experimental::awaitable_operators;
  auto first = co_await (std::move(work) || exchange.disconnected());
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return fail(ErrorKind::cancelled, "client_gone", "the client closed the connection");
}

}  // namespace space::http
