#include "e2b/e2b.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "e2b/builds.h"
#include "e2b/header_rules.h"
#include "e2b/state.h"
#include "e2b/volumes.h"

namespace space::e2b {
namespace {

// The first words of E2B's paths. "v2" and "v3" are E2B's alone; SPACE's own begin with "v1".
constexpr std::array kFirst = {"sandboxes", "snapshots",     "templates", "volumes", "volumecontent", "secrets", "teams", "health",
                               "api-keys",  "access-tokens", "v2",        "v3"};

std::string key_of(const http::Headers& headers) {
  if (headers.has("X-API-KEY")) return std::string(headers.get("X-API-KEY"));
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view value = headers.get("Authorization");
  return value.starts_with(kBearer) ? std::string(value.substr(kBearer.size())) : std::string();
}

// What makes, names or takes away templates. DELETE /templates/{x} also removes snapshots, which are a tenant's own: its handler asks.
bool changes_templates(const http::Exchange& exchange) {
  const auto& path = exchange.target().segments;
  const bool versioned = path.size() > 1 && (path[0] == "v2" || path[0] == "v3");
  if (path[versioned ? 1 : 0] != "templates") return false;
  if (exchange.method() == "GET") return path.size() == 4 && path[2] == "files";
  return !(exchange.method() == "DELETE" && path.size() == 2 && path[1] != "tags");
}

// A volume is shown with its token, which opens it for writing.
bool gives_token(const http::Exchange& exchange) {
  const auto& path = exchange.target().segments;
  return path[0] == "volumes" && path.size() == 2;
}

// Every route but /health needs a key.
Task<> identify(State& state, http::Exchange& exchange, const http::Handler& next) {
  if (exchange.target().segments[0] == "health" || is_signed_upload(exchange)) co_return co_await next(exchange);
  if (exchange.target().segments[0] == "volumecontent") {  // by the volume's own token
    CO_TRY_VOID(co_await admit_to_volume(state, exchange, key_of(exchange.headers())));
    co_return co_await next(exchange);
  }
  std::string secret = key_of(exchange.headers());
  if (secret.empty())
    co_return fail(ErrorKind::unauthenticated, "key_missing", "this request needs an API key in the header X-API-KEY",
                   "`space e2b env` prints what to set");
  const control::Scope needed = changes_templates(exchange)                            ? control::Scope::publish
                                : exchange.method() == "GET" && !gives_token(exchange) ? control::Scope::read
                                                                                       : control::Scope::run;
  CO_TRY(const control::Key key, co_await state.parts.authenticate(std::move(secret), needed));
  if (needed == control::Scope::publish && key.tenant != control::kDefaultTenant)
    co_return fail(ErrorKind::permission_denied, "host_only",
                   "templates are shared by every tenant of this server, and made by those who keep it",
                   fmt::format("use a key of the tenant `{}`", control::kDefaultTenant));
  exchange.attributes["tenant"] = key.tenant;
  exchange.attributes["key"] = key.id;
  if (key.scopes.allows(control::Scope::run)) exchange.attributes["may_run"] = "yes";
  co_return co_await next(exchange);
}

asio::awaitable<void> pause_due(State& state, Found found) {
  const std::string id = found.sandbox.id;
  const bool memory = found.settings->pause_memory;
  auto paused = co_await pause(state, std::move(found), memory);
  if (paused)
    log::info("e2b.paused_at_timeout", {{"sandbox", id}});
  else
    log::warn("e2b.not_paused", {{"sandbox", id}, {"error", paused.error()}});
}

// When the sandbox is gone, what its header rules made is nobody's.
asio::awaitable<void> sweep_later(State& state, std::string tenant) {
  co_await sleep_for(std::chrono::minutes(1));
  co_await sweep_header_rules(state, std::move(tenant));
}

// A sandbox whose time is over: paused when that was asked for. Its time is moved first, so that a pause that fails is tried again.
Task<bool> at_deadline(State& state, control::Sandbox sandbox) {
  constexpr std::int64_t kAgain_ms = 20'000;
  CO_TRY(const auto settings, co_await settings_of(state, sandbox.id));
  if (!settings->auto_pause) {
    if (settings->network.contains("rules")) spawn(state.parts.executor, sweep_later(state, sandbox.tenant));
    co_return false;
  }
  CO_TRY_VOID(co_await state.parts.engine.set_deadline(sandbox.tenant, sandbox.id, state.parts.clock.wall_ms() + kAgain_ms, false));
  Found found{std::move(sandbox), settings, true};
  spawn(state.parts.executor, pause_due(state, std::move(found)));
  co_return true;
}

bool is_api(const http::Exchange& exchange) {
  const auto& path = exchange.target().segments;
  return !path.empty() && std::find(kFirst.begin(), kFirst.end(), path[0]) != kFirst.end();
}

Task<> serve_api(State& state, http::Exchange& exchange) {
  const std::int64_t began_us = state.parts.clock.monotonic_us();
  auto done = co_await state.router(exchange);
  const std::string_view raw = exchange.target().raw;
  log::info("e2b.request", {{"method", exchange.method()},
                            {"path", raw.substr(0, raw.find('?'))},
                            {"us", state.parts.clock.monotonic_us() - began_us},
                            {"tenant", tenant_of(exchange)},
                            {"error", done ? std::string() : describe(done.error())}});
  if (done || exchange.started()) co_return done;
  co_return co_await exchange.reply(error_answer(done.error()));
}

Task<> health(State&, http::Exchange& exchange) { return reply_empty(exchange); }

}  // namespace

E2b::E2b(Parts parts, Options options) : state_(std::make_unique<State>(std::move(parts), std::move(options))) {
  State& state = *state_;
  state.router.use([&state](http::Exchange& x, const http::Handler& next) { return identify(state, x, next); });
  state.router.write_refusals(error_answer);
  add(state, "GET", "/health", health);
  add_sandbox_routes(state);
  add_lifecycle_routes(state);
  add_snapshot_routes(state);
  add_figure_routes(state);
  add_log_routes(state);
  add_secret_routes(state);
  add_template_routes(state);
  add_volume_routes(state);
  add_build_routes(state);
  add_missing_routes(state);
  state.parts.engine.on_deadline([&state](control::Sandbox sandbox) { return at_deadline(state, std::move(sandbox)); });
}

E2b::~E2b() = default;

Task<> E2b::serve(http::Exchange& exchange, const http::Handler& next) {
  State& state = *state_;
  if (is_traffic(state, exchange)) {
    const bool ours = co_await is_ours(state, exchange);
    if (ours) co_return co_await carry_traffic(state, exchange);
    co_return co_await next(exchange);
  }
  if (!is_api(exchange)) co_return co_await next(exchange);
  co_return co_await serve_api(state, exchange);
}

const std::string& tenant_of(const http::Exchange& exchange) {
  static const std::string kNone;
  const auto found = exchange.attributes.find("tenant");
  return found == exchange.attributes.end() ? kNone : found->second;
}

void add(State& state, std::string_view method, std::string_view pattern, Handler handler) {
  state.router.add(method, pattern, [&state, handler](http::Exchange& exchange) { return handler(state, exchange); });
}

Task<> reply(http::Exchange& exchange, int status, const json::value& body) {
  http::Response response = http::json_response(status, json::serialize(body));
  co_return co_await exchange.reply(std::move(response));
}

Task<> reply_empty(http::Exchange& exchange) {
  http::Response response;
  response.status = 204;
  co_return co_await exchange.reply(std::move(response));
}

json::object error_body(const Error& error) {
  std::string message = error.message;
  if (!error.next.empty()) message += " (" + error.next + ")";
  return {{"code", http::status_of(error)}, {"message", message}, {"error_code", error.code}};
}

http::Response error_answer(const Error& error) {
  const json::object body = error_body(error);
  http::Response response = http::json_response(http::status_of(error), json::serialize(body));
  if (error.kind == ErrorKind::resource_exhausted) response.headers.set("Retry-After", "1");
  return response;
}

}  // namespace space::e2b
