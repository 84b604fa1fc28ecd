// Sandboxes: create, look, delete; volumes are sandboxes too. Every change becomes an operation that the store has before the answer goes
// out.
#include "api/answer.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/log.h"
#include "base/random.h"
#include "control/checkpoints.h"
#include "control/volumes.h"

namespace space::api {
namespace {

using control::Operation;
using control::OperationKind;
using control::Sandbox;
using std::chrono::seconds;

Task<Sandbox> from_template(Services& services, std::string tenant, const CreateBody& wanted) {
  CO_TRY(const control::TemplateSize size, co_await services.node.template_size(wanted.template_reference));
  Sandbox sandbox;
  sandbox.id = new_id();
  sandbox.tenant = std::move(tenant);
  sandbox.template_reference = wanted.template_reference;
  sandbox.cpus = wanted.cpus.value_or(size.cpus);
  sandbox.memory_mib = wanted.memory_mib.value_or(size.memory_mib);
  sandbox.disk_mib = wanted.disk_mib.value_or(size.disk_mib);
  sandbox.metadata = wanted.metadata;
  sandbox.time_limit_s = wanted.time_limit_s;
  sandbox.rest = wanted.rest;
  sandbox.created_ms = services.clock.wall_ms();
  co_return sandbox;
}

// As a fork, though nobody need be there any more of whom the checkpoint was taken. Its policy is that sandbox's while there is one,
// else nothing is allowed.
Task<Sandbox> from_checkpoint(Services& services, std::string tenant, const CreateBody& wanted) {
  CO_TRY(const control::Checkpoint checkpoint, co_await control::find_checkpoint(services.node, tenant, wanted.checkpoint));
  const control::Parent parent(tenant, checkpoint);
  const control::OwnSettings own{wanted.metadata, wanted.time_limit_s, wanted.rest};
  Sandbox sandbox = control::child_of(parent, own, services.clock.wall_ms());
  sandbox.egress = control::changes::kNoEgress;
  if (!wanted.egress && services.egress)
    if (const auto settings = co_await services.store.find_egress(tenant, checkpoint.sandbox); settings && settings->generation > 0)
      sandbox.egress = settings->document;
  co_return sandbox;
}

Task<> create_sandbox(Services& services, http::Exchange& exchange) {
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  CO_TRY(CreateBody wanted, read_create(body));
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  const Statuses statuses{202, 201};
  if (keep) {  // an answer that is there needs no node
    exchange.attributes["fingerprint"] = keep->fingerprint;
    CO_TRY(auto kept, co_await services.store.find_answer(tenant_of(exchange), keep->key, keep->fingerprint));
    if (kept && (kept->status != statuses.accepted || wait.count() == 0))
      co_return co_await exchange.reply(replayed(kept->status, std::move(kept->body)));
  }
  std::string egress;
  if (wanted.egress && !wanted.egress->is_null()) {
    CO_TRY(egress, egress_document(*wanted.egress));
    if (!services.egress) co_return fail(control::egress_unavailable("this server has none"));
    CO_TRY_VOID(co_await services.egress->check(egress));
  }

  const std::string tenant = tenant_of(exchange);
  auto row = wanted.checkpoint.empty() ? from_template(services, tenant, wanted) : from_checkpoint(services, tenant, wanted);
  CO_TRY(Sandbox sandbox, co_await std::move(row));
  if (!egress.empty()) sandbox.egress = std::move(egress);
  const control::EgressSettings settings{sandbox.id, sandbox.tenant, sandbox.lineage.empty() ? sandbox.id : sandbox.lineage, 1,
                                         sandbox.egress};

  json::object env;
  for (const auto& [name, value] : wanted.env) env[name] = value;
  Operation operation;
  operation.id = new_id();
  operation.tenant = sandbox.tenant;
  operation.sandbox = sandbox.id;
  operation.kind = OperationKind::create;
  operation.created_ms = sandbox.created_ms;
  json::object request{{"env", std::move(env)}};
  if (!wanted.checkpoint.empty()) request["checkpoint"] = wanted.checkpoint;
  operation.request = json::serialize(request);

  CO_TRY(control::Accepted accepted, co_await services.engine.create(std::move(sandbox), std::move(operation), std::move(keep)));
  // While the sandbox is made. Should the gateway not take it now, it is told again, and allows nothing until then.
  if (services.egress && !settings.document.empty() && !accepted.replay)
    if (auto told = co_await services.egress->put(settings); !told)
      log::warn("egress.policy_not_applied", {{"sandbox", settings.sandbox}, {"error", told.error()}});
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

// For E2B's clients to mount, and to write to by its content API (src/e2b). It is looked at, listed and deleted as the sandbox that it is.
Task<> create_volume(Services& services, http::Exchange& exchange) {
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  JsonReader reader(body);
  std::string name = reader.text("name", 1, 128);
  if (!control::is_volume_name(name)) reader.reject("name", "must be of letters, digits, dash and underscore");
  CO_TRY_VOID(reader.done());
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  if (keep) exchange.attributes["fingerprint"] = keep->fingerprint;
  CO_TRY(const control::TemplateSize size, co_await services.node.template_size(control::kVolumeTemplate));
  Sandbox volume = control::new_volume(tenant_of(exchange), std::move(name), size, services.clock.wall_ms());
  Operation operation = new_operation(services, exchange, OperationKind::create, volume.id);
  operation.request = R"({"env":{}})";
  CO_TRY(control::Accepted accepted, co_await services.engine.create(std::move(volume), std::move(operation), std::move(keep)));
  const Statuses statuses{202, 201};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

Task<> remove_sandbox(Services& services, http::Exchange& exchange) { return change_sandbox(services, exchange, OperationKind::remove); }

Task<> get_sandbox(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY(const Sandbox sandbox, co_await services.store.find_sandbox(tenant_of(exchange), std::move(id)));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(render(sandbox))));
}

Task<> list_sandboxes(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  control::Page page = read_page(query);
  control::SandboxFilter filter;
  for (const std::string& name : query.list("state")) {
    const auto state = control::sandbox_state(name);
    if (!state) query.reject("state", "must be creating, running, paused, suspended, stopped, deleting, failed or ended");
    filter.states.push_back(state.value_or(control::SandboxState::running));
  }
  filter.metadata = query.starting_with("metadata.", 16);
  filter.with_volumes = !filter.metadata.empty();
  CO_TRY_VOID(query.done());
  const bool first = page.before == 0;
  const std::size_t limit = page.limit++;  // one more tells whether there is a next page
  CO_TRY(const auto sandboxes, co_await services.store.list_sandboxes(tenant_of(exchange), page, std::move(filter)));
  json::array items;
  for (std::size_t i = 0; i < std::min(limit, sandboxes.size()); ++i) items.push_back(render(sandboxes[i]));
  json::object out{{"sandboxes", std::move(items)}, {"next", nullptr}};
  if (sandboxes.size() > limit) out["next"] = write_cursor(sandboxes[limit - 1].sequence);
  // Those who keep the server are told of what nobody else can see, as after a lost database.
  if (first && tenant_of(exchange) == control::kDefaultTenant) {
    CO_TRY(const auto keyless, co_await services.store.tenants_without_key());
    if (!keyless.empty()) {
      json::array& tenants = out["without_key"].emplace_array();
      for (const auto& [tenant, count] : keyless) tenants.push_back(json::object{{"tenant", tenant}, {"sandboxes", count}});
    }
  }
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

}  // namespace

void add_sandbox_routes(Routes& routes) {
  routes.add("POST", "/v1/sandboxes", Access::key, Repeat::recorded, create_sandbox);
  routes.add("GET", "/v1/sandboxes", Access::key, Repeat::safe, list_sandboxes);
  routes.add("GET", "/v1/sandboxes/{id}", Access::key, Repeat::safe, get_sandbox);
  routes.add("DELETE", "/v1/sandboxes/{id}", Access::key, Repeat::recorded, remove_sandbox);
  routes.add("POST", "/v1/volumes", Access::key, Repeat::recorded, create_volume);
}

}  // namespace space::api
