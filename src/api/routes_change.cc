// PATCH of a sandbox: settings of one that runs are changed at once, of one that rests they are there when it wakes.
#include <fmt/format.h>

#include "api/answer.h"
#include "api/idempotency.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/log.h"
#include "base/random.h"

namespace space::api {
namespace {

using control::Operation;
using control::Sandbox;
using control::SandboxState;
using std::chrono::seconds;

constexpr seconds kTellLimit{120};
constexpr std::size_t kMostLabels = 64;

Result<> check(const Sandbox& sandbox, const control::SandboxUpdate& update) {
  const bool boots_next = sandbox.state == SandboxState::stopped || sandbox.state == SandboxState::ended;
  const bool resized =
      update.cpus.value_or(sandbox.cpus) != sandbox.cpus || update.memory_mib.value_or(sandbox.memory_mib) != sandbox.memory_mib;
  if (resized && !boots_next)
    return fail(ErrorKind::conflict, "size_in_memory",
                fmt::format("sandbox {} is {}: what is in its memory has the size that it has", sandbox.id, to_string(sandbox.state)),
                fmt::format("stop it first (POST /v1/sandboxes/{}/stop); it then starts from its disk with the new size", sandbox.id));
  std::map<std::string, std::string> labels = sandbox.metadata;
  control::apply(update.metadata, labels);
  std::size_t bytes = 0;
  for (const auto& [name, value] : labels) bytes += name.size() + value.size();
  if (labels.size() > kMostLabels || bytes > kMetadataLimit)
    return fail(ErrorKind::invalid_argument, "invalid_field",
                fmt::format("metadata must have at most {} names and {} bytes, with those that are there", kMostLabels, kMetadataLimit),
                "take some out: give them null");
  return {};
}

// The store has the policy when the operation is over. Should the gateway not take it now, it is told again, and allows what it did.
asio::awaitable<void> tell_gateway(Services& services, std::string tenant, std::string sandbox, std::string operation, seconds limit) {
  const auto over = co_await services.engine.wait(tenant, std::move(operation), limit);
  if (!over || over->state != control::OperationState::succeeded) co_return;
  const auto settings = co_await services.store.find_egress(tenant, sandbox);
  if (!settings || settings->generation == 0) co_return;
  const auto told = co_await services.egress->put(*settings);
  if (!told && told.error().code != "stale_generation")
    log::warn("egress.policy_not_applied", {{"sandbox", sandbox}, {"error", told.error()}});
}

Task<> update(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange));
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  CO_TRY(UpdateBody wanted, read_update(body));
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  if (keep) exchange.attributes["fingerprint"] = keep->fingerprint;
  const std::string tenant = tenant_of(exchange);
  CO_TRY(const Sandbox sandbox, co_await services.store.find_sandbox(tenant, id));
  CO_TRY_VOID(check(sandbox, wanted.update));
  if (wanted.egress) {
    CO_TRY(wanted.update.egress, egress_document(*wanted.egress));
    if (!services.egress) co_return fail(control::egress_unavailable("this server has none"));
    CO_TRY_VOID(co_await services.egress->check(wanted.update.egress));
  }
  Operation operation = new_operation(services, exchange, control::OperationKind::update, id);
  operation.request = control::encode(wanted.update);
  CO_TRY(control::Accepted accepted, co_await services.engine.change(std::move(operation), std::move(keep)));
  if (wanted.egress && !accepted.replay) {
    const std::string asked = accepted.operation.id;
    if (wait.count() > 0)
      co_await tell_gateway(services, tenant, id, asked, wait);
    else
      spawn(services.executor, tell_gateway(services, tenant, id, asked, kTellLimit));
  }
  const Statuses statuses{202, 200};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

}  // namespace

void add_change_routes(Routes& routes) { routes.add("PATCH", "/v1/sandboxes/{id}", Access::key, Repeat::recorded, update); }

}  // namespace space::api
