// Health, version, templates, the contract itself, figures.
#include <fmt/format.h>

#include "api/answer.h"
#include "api/openapi.h"
#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "build/builds.h"

namespace space::api {
namespace {

Task<> health(Services& services, http::Exchange& exchange) {
  exchange.attributes["quiet"] = "1";
  if (!services.node.reachable()) co_return fail(control::node_unavailable("no connection"));
  co_return co_await exchange.reply(http::json_response(200, R"({"status":"ok","node":"ok"})"));
}

// What node says of itself goes through; without it the rest is still an answer.
Task<> version(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  json::object out{{"version", SPACE_VERSION}, {"api", "v1"}, {"driver", nullptr}, {"accelerator", nullptr},
                   {"vmm_version", nullptr},   {"node", "ok"}};
  auto info = co_await services.node.info();
  if (!info) {
    out["node"] = "unavailable";
  } else {
    out["node_version"] = nullptr;
    for (auto& item : *info)
      out[item.key() == "version" ? json::string_view("node_version") : json::string_view(item.key())] = std::move(item.value());
  }
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> openapi(Services&, http::Exchange& exchange) {
  http::Response response = http::json_response(200, std::string(openapi_json()));
  response.headers.set("Cache-Control", "no-cache");
  co_return co_await exchange.reply(std::move(response));
}

Task<> list_templates(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  co_return co_await answer_from_node(services, exchange, "/v1/templates");
}

Result<std::string> template_target(const http::Exchange& exchange) {
  const std::string& reference = exchange.param("ref");
  if (!is_template_reference(reference))
    return fail(ErrorKind::not_found, "template_not_found", "there is no such template", "list what there is: GET /v1/templates");
  return "/v1/templates/" + reference;
}

Task<> get_template(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string target, template_target(exchange));
  co_return co_await answer_from_node(services, exchange, std::move(target));
}

Task<> delete_template(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string target, template_target(exchange));
  services.node.forget_template_sizes();
  if (services.builds) co_await services.builds->forget_layers_on(tenant_of(exchange), exchange.param("ref"));
  co_return co_await answer_from_node(services, exchange, std::move(target));
}

// Prometheus text format 0.0.4.
Task<> metrics(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  exchange.attributes["quiet"] = "1";
  const auto operations = services.engine.gauges();
  const auto store = services.store.counters();
  std::string out = "# TYPE space_requests_total counter\n";
  for (const auto& [key, count] : services.counters.requests)
    out += fmt::format("space_requests_total{{method=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  const auto line = [&out](std::string_view type, std::string_view name, std::uint64_t value) {
    out += fmt::format("# TYPE {0} {1}\n{0} {2}\n", name, type, value);
  };
  line("counter", "space_request_bytes_total", services.counters.bytes_in);
  line("counter", "space_response_bytes_total", services.counters.bytes_out);
  line("gauge", "space_event_streams", services.counters.streams);
  line("gauge", "space_operations_running", operations.running);
  line("gauge", "space_operations_pending", operations.pending);
  out += "# TYPE space_operations_total counter\n";
  out += fmt::format("space_operations_total{{state=\"succeeded\"}} {}\n", operations.succeeded);
  out += fmt::format("space_operations_total{{state=\"failed\"}} {}\n", operations.failed);
  out += fmt::format("space_operations_total{{state=\"cancelled\"}} {}\n", operations.cancelled);
  line("counter", "space_store_transactions_total", store.transactions);
  line("counter", "space_store_changes_total", store.changes);
  line("counter", "space_store_failures_total", store.failures);
  line("gauge", "space_node_reachable", services.node.reachable() ? 1 : 0);
  if (services.egress) {
    http::Request request;
    request.target = "/metrics";
    const auto gateway = co_await services.egress->forwarding().request(std::move(request));
    const bool reachable = gateway && gateway->status == 200;
    line("gauge", "space_egress_reachable", reachable ? 1 : 0);
    if (reachable) out += gateway->body;
  }
  http::Response response;
  response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  response.body = std::move(out);
  co_return co_await exchange.reply(std::move(response));
}

}  // namespace

void add_system_routes(Routes& routes) {
  routes.add("GET", "/v1/health", Access::open, Repeat::safe, health);
  routes.add("GET", "/openapi.json", Access::open, Repeat::safe, openapi);
  routes.add("GET", "/v1/version", Access::key, Repeat::safe, version);
  routes.add("GET", "/metrics", Access::host, Repeat::safe, metrics);
  routes.add("GET", "/v1/templates", Access::key, Repeat::safe, list_templates);
  routes.add("GET", "/v1/templates/{ref}", Access::key, Repeat::safe, get_template);
  routes.add("DELETE", "/v1/templates/{ref}", Access::publish, Repeat::kept, delete_template);
}

}  // namespace space::api
