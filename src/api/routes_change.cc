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

// From here on a gateway that is begun anew serves this sandbox nothing until it was told what came of the update.
Task<> announce(Services& services, Operation operation) {
  if (!services.egress || services.policy_changes.contains(operation.id)) co_return Result<>();
  CO_TRY(auto change, co_await services.egress->announce(operation.sandbox));
  services.policy_changes[operation.id] = std::move(change);
  co_return Result<>();
}

// Should the gateway not be there now, it is told again (keep_egress), and once it is back serves nothing until then.
asio::awaitable<void> tell_gateway(Services& services, Operation operation) {
  auto announced = services.policy_changes.extract(operation.id);
  if (!services.egress || announced.empty()) co_return;
  const std::string change = announced.mapped()->id();
  if (operation.state != control::OperationState::succeeded) co_return co_await services.egress->withdraw(operation.sandbox, change);
  const auto settings = co_await services.store.find_egress(operation.tenant, operation.sandbox);
  if (!settings) co_return;  // it is being deleted, here and there
  const auto told = co_await services.egress->conclude(*settings, change);
  if (told) co_return;
  log::warn("egress.policy_not_applied", {{"sandbox", operation.sandbox}, {"error", told.error()}});
  announced.mapped().reset();
  services.reconcile_egress();
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
  const Statuses statuses{202, 200};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

}  // namespace

control::Engine::PolicyWatch policy_watch(Services& services) {
  return {[&services](const Operation& operation) { return announce(services, operation); },
          [&services](const Operation& operation) { return tell_gateway(services, operation); }};
}

void add_change_routes(Routes& routes) { routes.add("PATCH", "/v1/sandboxes/{id}", Access::key, Repeat::recorded, update); }

}  // namespace space::api
