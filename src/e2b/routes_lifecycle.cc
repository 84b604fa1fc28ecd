// Time and state of a sandbox: timeout, refreshes, pause, connect, resume.
#include "e2b/header_rules.h"
#include "e2b/network.h"
#include "e2b/render.h"
#include "e2b/request.h"
#include "e2b/state.h"

namespace space::e2b {
namespace {

std::int64_t ends_in(State& state, std::int64_t seconds) { return state.parts.clock.wall_ms() + std::max<std::int64_t>(seconds, 0) * 1000; }

auto not_running(const Found& found) {
  return fail(ErrorKind::not_found, "sandbox_not_running", "sandbox " + found.sandbox.id + " is not running",
              "connect to it first: that wakes it");
}

Task<> set_timeout(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(const std::int64_t seconds, read_timeout(body, "timeout", std::nullopt));
  CO_TRY(const Found found, co_await find(state, exchange));
  if (!found.running) co_return not_running(found);
  CO_TRY_VOID(co_await state.parts.engine.set_deadline(found.sandbox.tenant, found.sandbox.id, ends_in(state, seconds), false));
  co_return co_await reply_empty(exchange);
}

Task<> refresh(State& state, http::Exchange& exchange) {
  constexpr std::int64_t kLeast = 15;
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(const std::int64_t seconds, read_timeout(body, "duration", kLeast));
  CO_TRY(const Found found, co_await find(state, exchange));
  if (!found.running) co_return not_running(found);
  CO_TRY_VOID(
      co_await state.parts.engine.set_deadline(found.sandbox.tenant, found.sandbox.id, ends_in(state, std::max(seconds, kLeast)), true));
  co_return co_await reply_empty(exchange);
}

Task<> pause_one(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const bool memory = r.boolean("memory", true);
  CO_TRY_VOID(r.done());
  CO_TRY(Found found, co_await find(state, exchange));
  if (!found.running) co_return fail(ErrorKind::conflict, "sandbox_paused", "sandbox " + found.sandbox.id + " is paused already");
  CO_TRY_VOID(co_await pause(state, std::move(found), memory));
  co_return co_await reply_empty(exchange);
}

// A running one is never shortened; a paused one is woken and gets the time anew.
Task<> connect(State& state, http::Exchange& exchange, std::optional<std::int64_t> usual_timeout_s) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(const std::int64_t seconds, read_timeout(body, "timeout", usual_timeout_s));
  JsonReader r(body);
  r.ignore_unknown();
  const bool memory = r.boolean("memory", true);
  CO_TRY_VOID(r.done());
  CO_TRY(Found found, co_await find(state, exchange));
  const bool was_running = found.running;
  if (!was_running) {
    CO_TRY(found, co_await wake(state, std::move(found), memory));
  }
  CO_TRY(found.sandbox,
         co_await state.parts.engine.set_deadline(found.sandbox.tenant, found.sandbox.id, ends_in(state, seconds), was_running));
  CO_TRY(const Tokens tokens, co_await tokens_of(state, found.sandbox));
  co_return co_await reply(exchange, was_running ? 200 : 201, render_sandbox(found.sandbox, *found.settings, tokens));
}

Task<> connect_v1(State& state, http::Exchange& exchange) { return connect(state, exchange, std::nullopt); }
Task<> connect_v2(State& state, http::Exchange& exchange) { return connect(state, exchange, 300); }

Task<> resume(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(const std::int64_t seconds, read_timeout(body, "timeout", 15));
  CO_TRY(Found found, co_await find(state, exchange));
  if (found.running)
    co_return fail(ErrorKind::conflict, "sandbox_running", "sandbox " + found.sandbox.id + " is running already", "connect to it");
  CO_TRY(found, co_await wake(state, std::move(found)));
  CO_TRY_VOID(co_await state.parts.engine.set_deadline(found.sandbox.tenant, found.sandbox.id, ends_in(state, seconds), false));
  CO_TRY(const Tokens tokens, co_await tokens_of(state, found.sandbox));
  co_return co_await reply(exchange, 201, render_sandbox(found.sandbox, *found.settings, tokens));
}

// All of its egress options anew; those for what comes in stay.
Task<> update_network(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY_VOID(refuse_network(body));
  CO_TRY(const Found found, co_await find(state, exchange));
  if (!found.running)
    co_return fail(ErrorKind::conflict, "sandbox_paused", "sandbox " + found.sandbox.id + " is paused",
                   "connect to it first: that wakes it");
  if (!state.parts.egress) co_return fail(control::egress_unavailable("this server has none"));
  Settings settings = *found.settings;
  settings.internet.reset();
  if (const json::value* internet = body.if_contains("allow_internet_access"); internet && internet->is_bool())
    settings.internet = internet->get_bool();
  for (const char* name : {"allowOut", "denyOut", "rules"}) {
    settings.network.erase(name);
    if (const json::value* value = body.if_contains(name); value && !value->is_null()) settings.network[name] = *value;
  }
  const bool had_rules = found.settings->network.contains("rules");
  CO_TRY(const std::unique_ptr<PlacedRules> rules, co_await place_header_rules(state, found.sandbox.tenant, settings.network));
  CO_TRY(std::string document, egress_document(settings.network, settings.internet.value_or(true), rules->bindings()));
  CO_TRY_VOID(co_await state.parts.egress->check(document));
  CO_TRY(const auto change, co_await state.parts.egress->announce(found.sandbox.id));
  auto policy = co_await state.parts.store.put_egress(found.sandbox.tenant, found.sandbox.id, std::move(document), std::nullopt);
  if (!policy) {
    co_await state.parts.egress->withdraw(found.sandbox.id, change->id());
    co_return fail(std::move(policy).error());
  }
  rules->keep();
  CO_TRY_VOID(co_await put_settings(state, found.sandbox.id, std::move(settings)));
  CO_TRY_VOID(co_await state.parts.egress->conclude(std::move(*policy), change->id()));
  if (had_rules) spawn(state.parts.executor, sweep_header_rules(state, found.sandbox.tenant));
  co_return co_await reply_empty(exchange);
}

}  // namespace

void add_lifecycle_routes(State& state) {
  add(state, "POST", "/sandboxes/{id}/timeout", set_timeout);
  add(state, "POST", "/sandboxes/{id}/refreshes", refresh);
  add(state, "POST", "/sandboxes/{id}/pause", pause_one);
  add(state, "POST", "/sandboxes/{id}/connect", connect_v1);
  add(state, "POST", "/v2/sandboxes/{id}/connect", connect_v2);
  add(state, "POST", "/sandboxes/{id}/resume", resume);
  add(state, "PUT", "/sandboxes/{id}/network", update_network);
}

}  // namespace space::e2b
