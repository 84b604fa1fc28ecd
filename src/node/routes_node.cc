#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "http/sse.h"
#include "node/guest_error.h"
#include "node/routes.h"
#include "node/upkeep.h"
#include "wire/agent_protocol.h"

namespace space::node {
namespace {

constexpr std::chrono::seconds kKeepalive{15};

json::object release_json(const tmpl::Release& r) {
  json::object env;
  for (const auto& [name, value] : r.env) env[name] = value;
  return {{"name", r.name},         {"tag", r.tag},
          {"digest", r.digest},     {"created_at", rfc3339(r.created_ms)},
          {"cpus", r.cpus},         {"memory_mib", r.memory_mib},
          {"disk_mib", r.disk_mib}, {"rootfs_bytes", r.rootfs_bytes},
          {"env", std::move(env)},  {"user", r.user},
          {"workdir", r.workdir},   {"start", r.start},
          {"ready", r.ready},       {"published", !r.disk.empty()}};
}

// With the state of its bases.
Task<json::object> described(RouteParts& parts, tmpl::Release release) {
  json::object out = release_json(release);
  if (!parts.bases) co_return out;
  CO_TRY(const auto bases, co_await parts.bases->status(release));
  add_bases(out, bases);
  co_return out;
}

Task<> info(http::Exchange& exchange, RouteParts& parts) {
  json::array pools;
  for (const PoolStats& s : parts.pools.stats()) {
    json::object size{{"cpus", s.size.cpus}, {"memory_mib", s.size.memory_mib}, {"disk_mib", s.size.disk_mib}};
    pools.push_back(json::object{{"template", s.template_digest},
                                 {"size", std::move(size)},
                                 {"spawned", s.spawned},
                                 {"ready", s.ready},
                                 {"ready_wanted", s.ready_wanted},
                                 {"hits", s.hits},
                                 {"misses", s.misses}});
  }
  json::object body{{"version", SPACE_VERSION},         {"driver", parts.driver.name()}, {"accelerator", parts.driver.accelerator()},
                    {"vmm_version", parts.vmm_version}, {"limits", parts.limits},        {"agent_protocol", wire::kAgentProtocol},
                    {"pools", std::move(pools)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> pump(http::SseWriter& out, Events::Listener& listener) {
  while (!listener.overflowed()) {
    const auto event = co_await listener.next_for(kKeepalive);
    if (!event) {
      CO_TRY_VOID(co_await out.keepalive());
      continue;
    }
    json::object data{{"sandbox", event->sandbox}, {"reason", event->reason}};
    http::SseEvent sse{std::to_string(event->sequence), event->type, json::serialize(data)};
    CO_TRY_VOID(co_await out.send(sse));
  }
  co_return fail(ErrorKind::resource_exhausted, "listener_too_slow", "events were lost because they were not read",
                 "list the sandboxes and listen again");
}

Task<> events(http::Exchange& exchange, RouteParts& parts) {
  using namespace asio::experimental::awaitable_operators;
  Events::Listener listener(parts.events);
  http::SseWriter out(exchange);
  CO_TRY_VOID(co_await out.start());
  auto end = co_await (pump(out, listener) || exchange.disconnected());
  if (end.index() == 0) co_return std::get<0>(std::move(end));
  co_return fail(reader_gone());
}

Task<> list_templates(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const auto releases, co_await parts.disk.run([&parts] { return parts.templates.list(); }));
  json::array all;
  for (const auto& release : releases) {
    CO_TRY(json::object one, co_await described(parts, release));
    all.push_back(std::move(one));
  }
  json::object body{{"templates", std::move(all)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> get_template(http::Exchange& exchange, RouteParts& parts) {
  const std::string reference = exchange.param("ref");
  CO_TRY(const auto release, co_await parts.disk.run([&] { return parts.templates.resolve(reference); }));
  CO_TRY(json::object body, co_await described(parts, release));
  co_return co_await reply_json(exchange, 200, std::move(body));
}

// The content goes with its last name: then nobody may stand on it.
Task<> check_not_needed(RouteParts& parts, std::string reference, tmpl::Release release) {
  auto list = [&parts] { return parts.templates.list(); };
  CO_TRY(const auto releases, co_await parts.disk.run(list));
  const bool whole = reference.starts_with("sha256:");
  for (const tmpl::Release& other : releases)
    if (!whole && other.digest == release.digest && (other.name != release.name || other.tag != release.tag)) co_return Result<>{};
  CO_TRY(const auto needs, co_await all_needs(parts.sandboxes, parts.vault, parts.disk));
  co_return tmpl::check_unneeded(reference, release.digest, needs);
}

Task<> delete_template(http::Exchange& exchange, RouteParts& parts) {
  const std::string reference = exchange.param("ref");
  CO_TRY(const auto release, co_await parts.disk.run([&] { return parts.templates.resolve(reference); }));
  CO_TRY_VOID(co_await check_not_needed(parts, reference, release));
  CO_TRY_VOID(co_await parts.disk.run([&] { return parts.templates.remove(reference); }));
  const auto left = co_await parts.disk.run([&] { return parts.templates.resolve(release.digest); });
  if (!left) co_await parts.pools.forget(release.digest);
  if (parts.pool_templates) parts.pool_templates->look();
  log::info("template.removed", {{"reference", reference}, {"digest", release.digest}});
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

}  // namespace

void add_node_routes(http::Router& router, RouteParts& parts) {
  router.add("GET", "/v1/info", [&parts](http::Exchange& e) { return info(e, parts); });
  router.add("GET", "/v1/events", [&parts](http::Exchange& e) { return events(e, parts); });
  router.add("GET", "/v1/templates", [&parts](http::Exchange& e) { return list_templates(e, parts); });
  router.add("GET", "/v1/templates/{ref}", [&parts](http::Exchange& e) { return get_template(e, parts); });
  router.add("DELETE", "/v1/templates/{ref}", [&parts](http::Exchange& e) { return delete_template(e, parts); });
}

}  // namespace space::node
