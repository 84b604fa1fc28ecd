// Publishing a checkpoint as a template, for the api role.
#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "node/publish.h"
#include "node/routes.h"
#include "snapshot/blob_store.h"

namespace space::node {
namespace {

Result<tmpl::RuntimeConfig> read_config(const json::object& object) {
  JsonReader in(object, "config");
  tmpl::RuntimeConfig config;
  config.cpus = static_cast<std::uint32_t>(in.number("cpus", 1, 64));
  config.memory_mib = static_cast<std::uint32_t>(in.number("memory_mib", 128, 1 << 20));
  config.disk_mib = static_cast<std::uint32_t>(in.number("disk_mib", 256, 1 << 24));
  config.env = in.text_map("env", 256, 32 << 10);
  config.user = in.text("user", 1, 32);
  config.workdir = in.text("workdir", 0, 4096, "");
  config.start = in.text("start", 0, tmpl::kLongestCommand, "");
  config.ready = in.text("ready", 0, tmpl::kLongestCommand, "");
  const auto has_nul = [](std::string_view text) { return text.find('\0') != text.npos; };
  if (has_nul(config.user) || has_nul(config.workdir) || has_nul(config.start) || has_nul(config.ready))
    in.reject("user", "and the other texts must not hold NUL");
  for (const auto& [name, value] : config.env)
    if (name.empty() || name.find('=') != name.npos || has_nul(name) || has_nul(value))
      in.reject("env", "must hold names without '=' and texts without NUL");
  TRY_VOID(in.done());
  return config;
}

Result<Publisher::Order> read_order(const json::object& body) {
  JsonReader in(body);
  Publisher::Order order;
  order.operation = in.text("operation", 1, 64);
  order.tenant = in.text("tenant", 1, 64);
  order.checkpoint = in.text("checkpoint", 20, 40);
  order.name = in.text("name", 1, 64);
  order.tag = in.text("tag", 1, 64);
  const json::object* config = in.object("config");
  if (!snapshot::is_tenant(order.tenant)) in.reject("tenant", "must be a tenant's name");
  if (!is_id(order.checkpoint)) in.reject("checkpoint", "must be a checkpoint's id");
  TRY_VOID(in.done());
  TRY(const tmpl::Reference reference, tmpl::parse_reference(order.name + ":" + order.tag));
  if (reference.name != order.name || reference.tag != order.tag)
    return fail(ErrorKind::invalid_argument, "template_reference", "this is no name of a template");
  if (config) {
    TRY(order.config, read_config(*config));
  }
  return order;
}

Task<> publish_template(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, 256 << 10));
  CO_TRY(Publisher::Order order, read_order(body));
  CO_TRY(const tmpl::Release release, co_await parts.publisher->publish(std::move(order)));
  if (parts.pool_templates) parts.pool_templates->look();
  json::object answer{{"name", release.name}, {"tag", release.tag}, {"digest", release.digest}};
  co_return co_await reply_json(exchange, 200, std::move(answer));
}

}  // namespace

void add_publish_routes(http::Router& router, RouteParts& parts) {
  router.add("POST", "/v1/templates", [&parts](http::Exchange& e) { return publish_template(e, parts); });
}

}  // namespace space::node
