// Sandboxes as E2B shows them: create, look, list, delete.
#include <algorithm>
#include <fmt/format.h>

#include "base/encoding.h"
#include "e2b/builds.h"
#include "e2b/copies.h"
#include "e2b/header_rules.h"
#include "e2b/network.h"
#include "e2b/render.h"
#include "e2b/request.h"
#include "e2b/state.h"
#include "e2b/volumes.h"

namespace space::e2b {
namespace {

using control::OperationKind;
using control::Sandbox;

constexpr std::size_t kPage = 500;

// The policy of a new sandbox, checked by the gateway; "" where there is none.
Task<std::string> network_of(State& state, const Settings& settings, const json::array& bindings) {
  CO_TRY(std::string document, egress_document(settings.network, settings.internet.value_or(true), bindings));
  if (!state.parts.egress) co_return std::string();
  CO_TRY_VOID(co_await state.parts.egress->check(document));
  co_return document;
}

Task<Sandbox> make(State& state, std::string tenant, CreateBody wanted, std::string reference) {
  auto size = co_await state.parts.node.template_size(reference);
  if (!size && size.error().kind != ErrorKind::not_found) co_return fail(std::move(size).error());
  std::vector<Snapshot> snapshots;
  CO_TRY_VOID(co_await find_mounts(state, tenant, wanted.settings.mounts));
  if (!size) {
    CO_TRY(snapshots, co_await find_snapshots(state, tenant, template_id_of(reference)));
    if (snapshots.empty())
      co_return fail(ErrorKind::not_found, "template_not_found", fmt::format("template '{}' not found", wanted.template_id),
                     "see what there is: GET /templates, or `space template ls`");
    if (wanted.settings.mounts.empty()) {  // as the sandbox had them that it was taken of
      CO_TRY(wanted.settings.mounts, co_await mounts_of_snapshot(state, tenant, snapshots.front().id));
    }
  }
  CO_TRY(const std::unique_ptr<PlacedRules> rules, co_await place_header_rules(state, tenant, wanted.settings.network));
  CO_TRY(std::string document, co_await network_of(state, wanted.settings, rules->bindings()));
  if (!size) {
    CO_TRY(Sandbox made,
           co_await make_from(state, std::move(tenant), std::move(snapshots.front()), std::move(wanted), std::move(document)));
    rules->keep();
    co_return made;
  }
  Sandbox sandbox;
  sandbox.tenant = std::move(tenant);
  sandbox.template_reference = std::move(reference);
  sandbox.cpus = size->cpus;
  sandbox.memory_mib = size->memory_mib;
  sandbox.disk_mib = size->disk_mib;
  sandbox.egress = std::move(document);
  CO_TRY(Sandbox made, co_await launch(state, std::move(sandbox), std::move(wanted), ""));
  rules->keep();
  co_return made;
}

Task<> create_sandbox(State& state, http::Exchange& exchange, std::int64_t usual_timeout_s, bool usual_secure) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(CreateBody wanted, read_create(body, usual_timeout_s, usual_secure));
  if (!wanted.settings.secure && !state.options.allow_unsecured)
    co_return fail(ErrorKind::invalid_argument, "unsecured_refused", "this server makes secured sandboxes only",
                   "leave secure: false out, or start the server with --e2b-allow-unsecured");
  CO_TRY(std::string reference, template_reference(wanted.template_id));
  reference = resolve_alias(state, reference);
  CO_TRY(const Sandbox sandbox, co_await make(state, tenant_of(exchange), std::move(wanted), std::move(reference)));
  CO_TRY(const auto settings, co_await settings_of(state, sandbox.id));
  CO_TRY(const Tokens tokens, co_await tokens_of(state, sandbox));
  co_return co_await reply(exchange, 201, render_sandbox(sandbox, *settings, tokens));
}

Task<> create_v1(State& state, http::Exchange& exchange) { return create_sandbox(state, exchange, 15, false); }
Task<> create_v2(State& state, http::Exchange& exchange) { return create_sandbox(state, exchange, 300, true); }

Task<> get_sandbox(State& state, http::Exchange& exchange) {
  CO_TRY(const Found found, co_await find(state, exchange));
  Tokens tokens;  // whoever may only look gets none: with it commands are run
  if (exchange.attributes.contains("may_run")) {
    CO_TRY(tokens, co_await tokens_of(state, found.sandbox));
  }
  co_return co_await reply(exchange, 200, render_detail(found, tokens));
}

Task<> kill(State& state, http::Exchange& exchange) {
  CO_TRY(const Found found, co_await find(state, exchange));
  CO_TRY_VOID(co_await change(state, found.sandbox.tenant, found.sandbox.id, OperationKind::remove));
  state.known.erase(found.sandbox.id);
  state.samples.erase(found.sandbox.id);
  if (found.settings->network.contains("rules")) spawn(state.parts.executor, sweep_header_rules(state, found.sandbox.tenant));
  co_return co_await reply_empty(exchange);
}

// All of the tenant's that match, without order: what one tenant may have at a time is bounded by the server.
Task<std::vector<Found>> matching(State& state, std::string tenant, const ListRequest& request) {
  std::vector<Found> out;
  for (control::Page page{0, kPage};;) {
    control::SandboxFilter filter;
    filter.metadata = request.metadata;
    CO_TRY(const auto some, co_await state.parts.store.list_sandboxes(tenant, page, std::move(filter)));
    for (const Sandbox& sandbox : some) {
      if (sandbox.metadata.contains("space.build") || control::is_volume(sandbox)) continue;  // a template in the making
      const bool running = is_running(sandbox.state) && !state.moving.contains(sandbox.id),
                 paused = is_paused(sandbox.state) || (is_running(sandbox.state) && !running);
      if (!(running && request.running) && !(paused && request.paused)) continue;
      if (!request.template_id.empty() && template_id_of(sandbox.template_reference) != request.template_id) continue;
      CO_TRY(const auto settings, co_await settings_of(state, sandbox.id));
      Found found{sandbox, settings, running};
      if (request.started_after_us && started_ms(found) * 1000 < *request.started_after_us) continue;
      out.push_back(std::move(found));
    }
    if (some.size() < kPage) co_return out;
    page.before = some.back().sequence;
  }
}

Task<> list_sandboxes(State& state, http::Exchange& exchange) {
  CO_TRY(ListRequest request, read_list(exchange.target()));
  // "ns/name" is the name.
  if (const std::size_t slash = request.template_id.find('/'); slash != std::string::npos) request.template_id.erase(0, slash + 1);
  CO_TRY(std::vector<Found> all, co_await matching(state, tenant_of(exchange), request));
  const auto running = std::count_if(all.begin(), all.end(), [](const Found& f) { return f.running; });
  // Newest first, ids ascending among equals; ascending is the exact reverse.
  const auto before = [](const std::pair<std::int64_t, std::string>& a, const std::pair<std::int64_t, std::string>& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  const auto place = [](const Found& f) { return std::pair(started_ms(f), f.sandbox.id); };
  std::sort(all.begin(), all.end(),
            [&](const Found& a, const Found& b) { return request.ascending ? before(place(b), place(a)) : before(place(a), place(b)); });
  if (request.after)
    std::erase_if(
        all, [&](const Found& f) { return request.ascending ? !before(place(f), *request.after) : !before(*request.after, place(f)); });
  json::array items;
  const std::size_t shown = std::min(request.limit, all.size());
  for (std::size_t i = 0; i < shown; ++i) items.push_back(render_listed(all[i]));
  http::Response response = http::json_response(200, json::serialize(items));
  if (all.size() > shown) response.headers.set("X-Next-Token", next_token(started_ms(all[shown - 1]), all[shown - 1].sandbox.id));
  if (request.running) response.headers.set("X-Total-Running", std::to_string(running));
  co_return co_await exchange.reply(std::move(response));
}

}  // namespace

void add_sandbox_routes(State& state) {
  add(state, "POST", "/sandboxes", create_v1);
  add(state, "POST", "/v2/sandboxes", create_v2);
  add(state, "GET", "/sandboxes", list_sandboxes);
  add(state, "GET", "/v2/sandboxes", list_sandboxes);
  add(state, "GET", "/sandboxes/{id}", get_sandbox);
  add(state, "DELETE", "/sandboxes/{id}", kill);
}

}  // namespace space::e2b
