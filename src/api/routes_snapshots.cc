// How often snapshots of a sandbox's disk are taken by themselves. They are taken, listed, looked at, deleted and gone back to as
// checkpoints are (routes_life.cc).
#include "api/answer.h"
#include "api/request.h"
#include "api/routes.h"

namespace space::api {
namespace {

// Node keeps this with the sandbox, and checks what is asked for.
Task<> settings(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  const std::string target = "/v1/sandboxes/" + id + "/snapshots";
  CO_TRY_VOID(co_await services.store.find_sandbox(tenant_of(exchange), std::move(id)));
  co_return co_await answer_from_node(services, exchange, target);
}

}  // namespace

void add_snapshot_routes(Routes& routes) {
  const std::string sandbox = "/v1/sandboxes/{id}";
  routes.add("GET", sandbox + "/snapshots", Access::key, Repeat::safe, settings);
  routes.add("PUT", sandbox + "/snapshots", Access::key, Repeat::kept, settings);
}

}  // namespace space::api
