#include "control/checkpoints.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "base/random.h"
#include "control/labels.h"
#include "control/node.h"

namespace space::control {
namespace {

constexpr std::size_t kMostCheckpoints = 100'000, kAnswerLimit = 64 << 20;

Task<json::object> ask(Node& node, std::string target, std::string tenant) {
  http::Request request;
  request.target = std::move(target);
  request.headers.set("Space-Tenant", tenant);
  auto answer = co_await node.forwarding().request(std::move(request), kAnswerLimit);
  if (!answer) co_return fail(node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return parse_json_object(answer->body, kAnswerLimit);
}

Result<Checkpoint> read_checkpoint(const json::object& item) {
  JsonReader r(item, "checkpoints");
  r.ignore_unknown();
  Checkpoint one;
  one.id = r.text("id", 1, 64);
  one.name = r.text("name", 0, 128, "");
  one.sandbox = r.text("sandbox", 0, 64, "");
  one.lineage = r.text("lineage", 0, 64, "");
  one.template_reference = r.text("template", 1, 256, "base:latest");
  one.cpus = r.number("cpus", 1, 1024, 1);
  one.memory_mib = r.number("memory_mib", 1, 1 << 24, 512);
  one.disk_mib = r.number("disk_mib", 1, 1 << 28, 4096);
  one.created_at = r.text("created_at", 0, 40, "");
  TRY_VOID(r.done());
  return one;
}

}  // namespace

Task<std::vector<Checkpoint>> list_checkpoints(Node& node, std::string tenant, std::string sandbox) {
  std::string target = "/v1/checkpoints";
  if (!sandbox.empty()) target += "?sandbox=" + percent_encode(sandbox);
  CO_TRY(const json::object object, co_await ask(node, std::move(target), std::move(tenant)));
  JsonReader top(object);
  top.ignore_unknown();
  const json::array* items = top.array("checkpoints", kMostCheckpoints);
  CO_TRY_VOID(top.done());
  std::vector<Checkpoint> all;
  if (items)
    for (const json::value& item : *items) {
      if (!item.is_object()) continue;
      CO_TRY(Checkpoint one, read_checkpoint(item.get_object()));
      all.push_back(std::move(one));
    }
  std::stable_sort(all.begin(), all.end(), [](const Checkpoint& a, const Checkpoint& b) { return a.created_at < b.created_at; });
  co_return all;
}

Task<Checkpoint> find_checkpoint(Node& node, std::string tenant, std::string id) {
  std::string target = "/v1/checkpoints/" + percent_encode(id);
  CO_TRY(const json::object object, co_await ask(node, std::move(target), std::move(tenant)));
  co_return read_checkpoint(object);
}

Parent::Parent(const Sandbox& sandbox)
    : tenant(sandbox.tenant),
      template_reference(sandbox.template_reference),
      lineage(sandbox.lineage),
      cpus(sandbox.cpus),
      memory_mib(sandbox.memory_mib),
      disk_mib(sandbox.disk_mib),
      metadata(sandbox.metadata),
      time_limit_s(sandbox.time_limit_s),
      rest(sandbox.rest) {
  std::erase_if(metadata, [](const auto& label) { return is_own_label(label.first); });  // what is made of a volume is none
}

Parent::Parent(std::string of_tenant, const Checkpoint& checkpoint)
    : tenant(std::move(of_tenant)),
      template_reference(checkpoint.template_reference),
      lineage(checkpoint.lineage.empty() ? checkpoint.sandbox : checkpoint.lineage),
      cpus(checkpoint.cpus),
      memory_mib(checkpoint.memory_mib),
      disk_mib(checkpoint.disk_mib) {}

Sandbox child_of(const Parent& parent, OwnSettings own, std::int64_t now_ms) {
  Sandbox child;
  child.id = new_id();
  child.tenant = parent.tenant;
  child.template_reference = parent.template_reference;
  child.cpus = parent.cpus;
  child.memory_mib = parent.memory_mib;
  child.disk_mib = parent.disk_mib;
  child.lineage = parent.lineage;  // whose certificates its guest trusts
  child.metadata = own.metadata ? std::move(*own.metadata) : parent.metadata;
  child.time_limit_s = own.time_limit_s.value_or(parent.time_limit_s);
  child.rest = own.rest.value_or(parent.rest);
  child.created_ms = now_ms;
  return child;
}

}  // namespace space::control
