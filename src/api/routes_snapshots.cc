// Snapshots of a sandbox's disk alone: taking one, and how often they are taken by themselves. They are listed, looked at, deleted and
// gone back to as checkpoints are.
#include "api/answer.h"
#include "api/idempotency.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/random.h"

namespace space::api {
namespace {

using control::Operation;
using control::OperationKind;

Task<> snapshot(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange));
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  JsonReader reader(body);
  const std::string name = reader.text("name", 0, 128, "");
  CO_TRY_VOID(reader.done());
  CO_TRY(const std::chrono::seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  if (keep) exchange.attributes["fingerprint"] = keep->fingerprint;
  Operation operation;
  operation.id = new_id();
  operation.tenant = tenant_of(exchange);
  operation.sandbox = std::move(id);
  operation.kind = OperationKind::snapshot;
  operation.created_ms = services.clock.wall_ms();
  const json::object request{{"checkpoint", new_id()}, {"name", name}};
  operation.request = json::serialize(request);
  CO_TRY(control::Accepted accepted, co_await services.engine.change(std::move(operation), std::move(keep)));
  const Statuses statuses{202, 201};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

// Node keeps this with the sandbox, and checks what is asked for.
Task<> settings(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  CO_TRY_VOID(query.done());
  CO_TRY(std::string id, sandbox_id(exchange));
  const std::string target = "/v1/sandboxes/" + id + "/snapshots";
  CO_TRY_VOID(co_await services.store.find_sandbox(tenant_of(exchange), std::move(id)));
  co_return co_await answer_from_node(services, exchange, target);
}

}  // namespace

void add_snapshot_routes(Routes& routes) {
  const std::string sandbox = "/v1/sandboxes/{id}";
  routes.add("POST", sandbox + "/snapshot", Access::key, Repeat::recorded, snapshot);
  routes.add("GET", sandbox + "/snapshots", Access::key, Repeat::safe, settings);
  routes.add("PUT", sandbox + "/snapshots", Access::key, Repeat::safe, settings);
}

}  // namespace space::api
