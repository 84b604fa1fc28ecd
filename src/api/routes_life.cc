// The life of a sandbox beyond running: pause, suspend, stop and the ways back; checkpoints and what is made of them.
#include <fmt/format.h>

#include "api/answer.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "control/checkpoints.h"

namespace space::api {
namespace {

using control::Operation;
using control::OperationKind;
using control::Sandbox;
using std::chrono::seconds;

constexpr std::int64_t kMostChildren = 64;

Error checkpoint_not_found() {
  return {ErrorKind::not_found, "checkpoint_not_found", "there is no such checkpoint", "list what there is: GET /v1/checkpoints"};
}

Error checkpoint_of_another() {
  return {ErrorKind::conflict, "checkpoint_of_another", "this checkpoint is of another sandbox",
          "make a sandbox from it: a create with `checkpoint`, or `space create --from`"};
}

std::string optional_checkpoint(JsonReader& reader) {
  std::string id = reader.text("checkpoint", 0, 40, "");
  if (!id.empty() && !is_id(id)) reader.reject("checkpoint", "must be a checkpoint's id");
  return id;
}

// Keeps a point to come back to: a checkpoint, or a snapshot of the disk alone.
template <OperationKind kind>
Task<> keep_point(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange));
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  JsonReader reader(body);
  const std::string name = reader.text("name", 0, 128, "");
  CO_TRY_VOID(reader.done());
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  if (keep) exchange.attributes["fingerprint"] = keep->fingerprint;
  Operation operation = new_operation(services, exchange, kind, std::move(id));
  const json::object request{{"checkpoint", new_id()}, {"name", name}};
  operation.request = json::serialize(request);
  CO_TRY(control::Accepted accepted, co_await services.engine.change(std::move(operation), std::move(keep)));
  const Statuses statuses{202, 201};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

Task<> restore(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange));
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  JsonReader reader(body);
  const std::string from = optional_checkpoint(reader);
  if (from.empty()) reader.reject("checkpoint", "must be given: which one to go back to");
  const std::string path = reader.text("path", 0, 4095, ""), into = reader.text("into", 0, 4095, "");
  if (path.empty() && !into.empty()) reader.reject("into", "belongs to a path");
  CO_TRY_VOID(reader.done());
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  if (keep) exchange.attributes["fingerprint"] = keep->fingerprint;
  Operation operation = new_operation(services, exchange, OperationKind::restore, std::move(id));
  json::object request{{"checkpoint", from}};
  if (!path.empty()) request["path"] = path;
  if (!into.empty()) request["into"] = into;
  operation.request = json::serialize(request);
  CO_TRY(control::Accepted accepted, co_await services.engine.change(std::move(operation), std::move(keep)));
  const Statuses statuses{202, 200};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

struct ForkBody {
  std::string checkpoint;
  std::size_t count = 1;
  std::map<std::string, std::string> env, metadata;
  bool has_metadata = false;
  std::optional<std::int64_t> time_limit_s, idle_pause_s, idle_suspend_s, idle_cpu_percent;
  std::optional<json::value> egress;
};

Result<ForkBody> read_fork(const json::object& body) {
  JsonReader reader(body);
  ForkBody out;
  out.checkpoint = optional_checkpoint(reader);
  out.count = static_cast<std::size_t>(reader.number("count", 1, kMostChildren, 1));
  out.has_metadata = reader.has("metadata");
  out.time_limit_s = reader.optional_number("time_limit_s", 1, 30LL * 24 * 3600);
  // The same rules as for a create.
  json::object rest;
  for (const char* name : {"env", "metadata"})
    if (const json::object* map = reader.object(name)) rest[name] = *map;
  for (const char* name : {"egress", "idle_pause_s", "idle_suspend_s", "idle_cpu_percent"})
    if (json::value value = reader.value(name); !value.is_null()) rest[name] = std::move(value);
  TRY_VOID(reader.done());
  TRY(CreateBody same, read_create(rest));
  if (rest.contains("idle_pause_s")) out.idle_pause_s = same.rest.idle_pause_s;
  if (rest.contains("idle_suspend_s")) out.idle_suspend_s = same.rest.idle_suspend_s;
  if (rest.contains("idle_cpu_percent")) out.idle_cpu_percent = same.rest.idle_cpu_percent;
  out.egress = std::move(same.egress);
  out.env = std::move(same.env);
  out.metadata = std::move(same.metadata);
  return out;
}

control::OwnSettings own_settings(const ForkBody& wanted, const Sandbox& parent) {
  control::OwnSettings own;
  if (wanted.has_metadata) own.metadata = wanted.metadata;
  own.time_limit_s = wanted.time_limit_s;
  own.rest = parent.rest;
  own.rest->idle_pause_s = wanted.idle_pause_s.value_or(parent.rest.idle_pause_s);
  own.rest->idle_suspend_s = wanted.idle_suspend_s.value_or(parent.rest.idle_suspend_s);
  own.rest->idle_cpu_percent = wanted.idle_cpu_percent.value_or(parent.rest.idle_cpu_percent);
  return own;
}

// The children's policies are their parent's, or the one that was given. Should the gateway not take one now, it is told again, and allows
// nothing until then.
asio::awaitable<void> tell_gateway(Services& services, std::string tenant, std::vector<std::string> children) {
  for (const std::string& child : children) {
    const auto settings = co_await services.store.find_egress(tenant, child);
    if (!settings || settings->generation == 0) continue;
    const auto told = co_await services.egress->put(*settings);
    if (!told) log::warn("egress.policy_not_applied", {{"sandbox", child}, {"error", told.error()}});
  }
}

Task<> fork(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange));
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  CO_TRY(const ForkBody wanted, read_fork(body));
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  const Statuses statuses{202, 201};
  bool repeated = false;
  if (keep) {  // an answer that is there needs no node
    exchange.attributes["fingerprint"] = keep->fingerprint;
    CO_TRY(auto kept, co_await services.store.find_answer(tenant_of(exchange), keep->key, keep->fingerprint));
    if (kept && (kept->status != statuses.accepted || wait.count() == 0))
      co_return co_await exchange.reply(replayed(kept->status, std::move(kept->body)));
    repeated = kept.has_value();
  }
  CO_TRY(const Sandbox parent, co_await services.store.find_sandbox(tenant_of(exchange), id));
  std::string egress;
  if (wanted.egress && !repeated) {
    CO_TRY(egress, egress_document(*wanted.egress));
    if (!services.egress) co_return fail(control::egress_unavailable("this server has none"));
    CO_TRY_VOID(co_await services.egress->check(egress));
  }
  const bool running = parent.state == control::SandboxState::running || parent.state == control::SandboxState::paused;
  if (wanted.checkpoint.empty() && !running && !repeated)
    co_return fail(ErrorKind::conflict, fmt::format("sandbox_{}", to_string(parent.state)),
                   fmt::format("sandbox {} is {}", id, to_string(parent.state)), "wake it first, or name one of its checkpoints");
  Operation operation = new_operation(services, exchange, OperationKind::fork, std::move(id));
  const control::OwnSettings own = own_settings(wanted, parent);
  control::Parent origin(parent);
  if (!wanted.checkpoint.empty()) {
    const auto then = co_await control::find_checkpoint(services.node, tenant_of(exchange), wanted.checkpoint);
    if (!then && !repeated) co_return fail(then.error());
    // The guest in it trusts the certificates of its own lineage; a child of this parent would be served by another, under another policy.
    if (then && then->sandbox != parent.id) co_return fail(checkpoint_of_another());
    if (then) {  // it may have been of another size then
      origin.cpus = then->cpus;
      origin.memory_mib = then->memory_mib;
    }
  }
  std::vector<Sandbox> children;
  for (std::size_t i = 0; i < wanted.count; ++i) {
    children.push_back(control::child_of(origin, own, operation.created_ms));
    children.back().egress = egress;
  }
  json::array ids;
  for (const Sandbox& child : children) ids.emplace_back(child.id);
  json::object env;
  for (const auto& [name, value] : wanted.env) env[name] = value;
  const json::object request{{"checkpoint", wanted.checkpoint.empty() ? new_id() : wanted.checkpoint},
                             {"take", wanted.checkpoint.empty()},
                             {"children", std::move(ids)},
                             {"env", std::move(env)}};
  operation.request = json::serialize(request);
  std::vector<std::string> names;
  for (const Sandbox& child : children) names.push_back(child.id);
  CO_TRY(control::Accepted accepted, co_await services.engine.fork(std::move(children), std::move(operation), std::move(keep)));
  if (!accepted.replay && services.egress) co_await tell_gateway(services, tenant_of(exchange), std::move(names));
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

Task<> list_checkpoints(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  const std::string sandbox = query.text("sandbox", 64);
  CO_TRY_VOID(query.done());
  std::string target = "/v1/checkpoints";
  if (!sandbox.empty()) target += "?sandbox=" + percent_encode(sandbox);
  co_return co_await answer_from_node(services, exchange, std::move(target));
}

Task<> tree(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  co_return co_await answer_from_node(services, exchange, "/v1/tree");
}

Task<> one(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  const std::string& id = exchange.param("checkpoint");
  if (!is_id(id)) co_return fail(checkpoint_not_found());
  co_return co_await answer_from_node(services, exchange, "/v1/checkpoints/" + id);
}

template <OperationKind kind>
Task<> change(Services& services, http::Exchange& exchange) {
  return change_sandbox(services, exchange, kind);
}

}  // namespace

void add_life_routes(Routes& routes) {
  const std::string sandbox = "/v1/sandboxes/{id}";
  routes.add("POST", sandbox + "/pause", Access::key, Repeat::recorded, change<OperationKind::pause>);
  routes.add("POST", sandbox + "/resume", Access::key, Repeat::recorded, change<OperationKind::resume>);
  routes.add("POST", sandbox + "/suspend", Access::key, Repeat::recorded, change<OperationKind::suspend>);
  routes.add("POST", sandbox + "/wake", Access::key, Repeat::recorded, change<OperationKind::wake>);
  routes.add("POST", sandbox + "/stop", Access::key, Repeat::recorded, change<OperationKind::stop>);
  routes.add("POST", sandbox + "/start", Access::key, Repeat::recorded, change<OperationKind::start>);
  routes.add("POST", sandbox + "/checkpoint", Access::key, Repeat::recorded, keep_point<OperationKind::checkpoint>);
  routes.add("POST", sandbox + "/snapshot", Access::key, Repeat::recorded, keep_point<OperationKind::snapshot>);
  routes.add("POST", sandbox + "/restore", Access::key, Repeat::recorded, restore);
  routes.add("POST", sandbox + "/fork", Access::key, Repeat::recorded, fork);
  routes.add("GET", "/v1/tree", Access::key, Repeat::safe, tree);
  routes.add("GET", "/v1/checkpoints", Access::key, Repeat::safe, list_checkpoints);
  routes.add("GET", "/v1/checkpoints/{checkpoint}", Access::key, Repeat::safe, one);
  routes.add("DELETE", "/v1/checkpoints/{checkpoint}", Access::key, Repeat::kept, one);
}

}  // namespace space::api
