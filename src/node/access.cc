#include "node/access.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/random.h"

namespace space::node {
namespace {

tl::unexpected<Error> no_such_sandbox() {
  return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox", "list the sandboxes of this tenant");
}

std::string_view attach_token(const http::Exchange& exchange) {
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view value = exchange.headers().get("Authorization");
  if (value.size() < kScheme.size() || !http::equal_no_case(value.substr(0, kScheme.size()), kScheme)) return {};
  value.remove_prefix(kScheme.size());
  return value.starts_with("at_") ? value : std::string_view();
}

}  // namespace

http::Router::Middleware peer_check(uid_t api_uid) {
  return [api_uid](http::Exchange& exchange, const http::Handler& next) -> Task<> {
    const auto& peer = exchange.peer().credentials;
    if (peer && (peer->uid == 0 || peer->uid == api_uid)) co_return co_await next(exchange);
    log::warn("peer.refused", {{"uid", peer ? static_cast<std::int64_t>(peer->uid) : -1}});
    co_return fail(ErrorKind::permission_denied, "peer_refused", "this socket serves the api role alone", "use the public API");
  };
}

Result<std::shared_ptr<Sandbox>> tenant_sandbox(const Sandboxes& sandboxes, const http::Exchange& exchange) {
  const std::string& id = exchange.param("id");
  auto sandbox = is_id(id) ? sandboxes.find(id) : nullptr;
  if (!sandbox || exchange.headers().count("Space-Tenant") != 1) return no_such_sandbox();
  if (!equal_constant_time(sandbox->record.tenant, exchange.headers().get("Space-Tenant"))) return no_such_sandbox();
  return sandbox;
}

Result<std::shared_ptr<Sandbox>> session_sandbox(const Sandboxes& sandboxes, const TokenKey& tokens, const http::Exchange& exchange) {
  const std::string_view token = attach_token(exchange);
  if (token.empty()) return tenant_sandbox(sandboxes, exchange);
  const std::string& id = exchange.param("id");
  auto sandbox = is_id(id) ? sandboxes.find(id) : nullptr;
  if (!sandbox) return fail(ErrorKind::unauthenticated, "token_invalid", "this is no attach token of this command session");
  TRY_VOID(tokens.check_attach(sandbox->record, exchange.param("session"), token, system_clock().wall_ms()));
  return sandbox;
}

}  // namespace space::node
