#include "api/routes.h"

#include <fmt/format.h>

#include "api/idempotency.h"
#include "api/observed.h"
#include "api/request.h"
#include "base/log.h"
#include "base/random.h"
#include "http/authorization.h"

namespace space::api {
namespace {

control::Scope needed_scope(Access access, std::string_view method) {
  switch (access) {
    case Access::admin:
      return control::Scope::admin;
    case Access::publish:
      return control::Scope::publish;
    case Access::host:
      return control::Scope::read;
    case Access::key:
      if (method == "GET" || method == "HEAD") return control::Scope::read;
      break;
    case Access::run:
    case Access::attach:
    case Access::open:
      break;
  }
  return control::Scope::run;
}

// Who asks. An attach token goes through to node, which alone knows it: until it has spoken nothing is kept and nothing is told.
Task<> identify(Services& services, Access access, Observed& exchange) {
  if (access == Access::open) co_return Result<>();
  if (access == Access::attach && exchange.headers().count("Authorization") == 1) {
    const std::string token = http::bearer(exchange.headers());
    if (token.starts_with("at_")) {
      exchange.attributes["attach_token"] = token;
      co_return Result<>();
    }
  }
  CO_TRY(const control::Key key, co_await services.keys.authenticate(exchange.headers(), needed_scope(access, exchange.method())));
  if ((access == Access::publish || access == Access::host) && key.tenant != control::kDefaultTenant)
    co_return fail(ErrorKind::permission_denied, "host_only", "this concerns every tenant of the server, and is for those who keep it",
                   fmt::format("use a key of the tenant `{}`", control::kDefaultTenant));
  exchange.attributes["tenant"] = key.tenant;
  exchange.attributes["key"] = key.id;
  co_return Result<>();
}

http::Response problem_answer(const Error& error) {
  http::Response response = http::problem(error);
  if (error.kind == ErrorKind::unauthenticated) response.headers.set("WWW-Authenticate", "Bearer");
  const bool soon = error.kind == ErrorKind::unavailable || error.kind == ErrorKind::resource_exhausted ||
                    error.code == "sandbox_not_ready" || error.code == "sandbox_busy" || error.code == "idempotency_in_flight";
  if (soon) response.headers.set("Retry-After", "1");
  return response;
}

void write_log(Services& services, const Observed& exchange, const Result<>& result, std::int64_t began_us) {
  ++services.counters.requests[{exchange.method(), exchange.status()}];
  services.counters.bytes_in += exchange.bytes_in();
  services.counters.bytes_out += exchange.bytes_out();
  const auto attribute = [&](const char* name) {
    const auto found = exchange.attributes.find(name);
    return found == exchange.attributes.end() ? std::string() : found->second;
  };
  const std::string_view raw = exchange.target().raw;
  const bool noisy = exchange.attributes.contains("quiet") && result;
  log::write(noisy ? log::Level::debug : log::Level::info, "request",
             {{"request", exchange.request_id()},
              {"method", exchange.method()},
              {"path", raw.substr(0, raw.find('?'))},
              {"status", exchange.status()},
              {"us", services.clock.monotonic_us() - began_us},
              {"tenant", attribute("tenant")},
              {"key", attribute("key")},
              {"operation", attribute("operation")},
              {"error", result ? std::string() : describe(result.error())}});
}

Task<> handle(Services& services, const Route& route, Observed& exchange) {
  CO_TRY_VOID(co_await identify(services, route.access, exchange));
  if (route.repeat == Repeat::recorded) CO_TRY_VOID(no_query(exchange));
  if (route.repeat == Repeat::safe || route.repeat == Repeat::recorded) co_return co_await route.handler(services, exchange);
  co_return co_await answer_once(services, exchange, route);
}

Task<> serve(Services& services, Route route, http::Exchange& raw) {
  Observed exchange(raw, new_id());
  exchange.attributes["request"] = exchange.request_id();
  const std::int64_t began_us = services.clock.monotonic_us();
  auto result = co_await handle(services, route, exchange);
  if (!result && !raw.started()) {
    const Result<> why = result;
    Observed answer(raw, exchange.request_id());  // what was held back of a broken answer is dropped
    result = co_await answer.reply(problem_answer(why.error()));
    answer.attributes = exchange.attributes;
    write_log(services, answer, why, began_us);
    co_return result;
  }
  write_log(services, exchange, result, began_us);
  co_return result;
}

}  // namespace

void Routes::add(std::string_view method, std::string_view pattern, Access access, Repeat repeat, Handler handler, BodyCheck check) {
  const Route route{access, repeat, handler, check};
  router_.add(method, pattern, [services = &services_, route](http::Exchange& exchange) { return serve(*services, route, exchange); });
}

void add_routes(Services& services, http::Router& router) {
  Routes routes(services, router);
  add_system_routes(routes);
  add_key_routes(routes);
  add_sandbox_routes(routes);
  add_life_routes(routes);
  add_change_routes(routes);
  add_snapshot_routes(routes);
  add_operation_routes(routes);
  add_event_routes(routes);
  add_data_routes(routes);
  add_egress_routes(routes);
  add_build_routes(routes);
}

const std::string& tenant_of(const http::Exchange& exchange) {
  static const std::string kNone;
  const auto found = exchange.attributes.find("tenant");
  return found == exchange.attributes.end() ? kNone : found->second;
}

Result<std::string> sandbox_id(const http::Exchange& exchange) {
  const std::string& id = exchange.param("id");
  if (!is_id(id))
    return fail(ErrorKind::not_found, "sandbox_not_found", "there is no such sandbox", "list what there is: GET /v1/sandboxes");
  return id;
}

http::Response problem_with(const Error& error, const json::object& more) {
  http::Response response = problem_answer(error);
  json::error_code ignored;
  json::value body = json::parse(response.body, ignored);
  if (!body.is_object()) return response;
  for (const auto& item : more) body.get_object()[item.key()] = item.value();
  response.body = json::serialize(body);
  return response;
}

}  // namespace space::api
