#include "e2b/copies.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/random.h"

namespace space::e2b {
namespace {

constexpr std::size_t kMostSnapshots = 100'000, kAnswerLimit = 64 << 20;

Task<std::string> ask_node(State& state, std::string method, std::string target, std::string tenant) {
  http::Request request;
  request.method = std::move(method);
  request.target = std::move(target);
  request.headers.set("Space-Tenant", tenant);
  auto answer = co_await state.parts.node.forwarding().request(std::move(request), kAnswerLimit);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return std::move(answer->body);
}

struct Dated {
  std::string created;  // RFC 3339 in UTC: its order is that of time
  Snapshot snapshot;
};

Result<Dated> read_snapshot(const json::object& item) {
  JsonReader r(item, "checkpoints");
  r.ignore_unknown();
  Dated out;
  Snapshot& one = out.snapshot;
  one.id = r.text("id", 1, 64);
  one.name = r.text("name", 0, 128, "");
  one.sandbox = r.text("sandbox", 0, 64, "");
  one.lineage = r.text("lineage", 0, 64, "");
  one.template_reference = r.text("template", 1, 256, "base:latest");
  one.cpus = r.number("cpus", 1, 1024, 1);
  one.memory_mib = r.number("memory_mib", 1, 1 << 24, 512);
  one.disk_mib = r.number("disk_mib", 1, 1 << 28, 4096);
  out.created = r.text("created_at", 0, 40, "");
  TRY_VOID(r.done());
  return out;
}

}  // namespace

Task<std::vector<Snapshot>> snapshots_of(State& state, std::string tenant, std::string sandbox) {
  std::string target = "/v1/checkpoints";
  if (!sandbox.empty()) target += "?sandbox=" + percent_encode(sandbox);
  CO_TRY(const std::string text, co_await ask_node(state, "GET", std::move(target), std::move(tenant)));
  CO_TRY(const json::object object, parse_json_object(text, kAnswerLimit));
  JsonReader top(object);
  top.ignore_unknown();
  const json::array* items = top.array("checkpoints", kMostSnapshots);
  CO_TRY_VOID(top.done());
  std::vector<Dated> dated;
  if (items)
    for (const json::value& item : *items) {
      if (!item.is_object()) continue;
      CO_TRY(Dated one, read_snapshot(item.get_object()));
      if (one.snapshot.name.starts_with("build-") || one.snapshot.name.starts_with("publish-")) continue;  // a build's own
      dated.push_back(std::move(one));
    }
  std::stable_sort(dated.begin(), dated.end(), [](const Dated& a, const Dated& b) { return a.created > b.created; });
  std::vector<Snapshot> out;
  for (Dated& one : dated) out.push_back(std::move(one.snapshot));
  co_return out;
}

Task<std::vector<Snapshot>> find_snapshots(State& state, std::string tenant, std::string wanted) {
  CO_TRY(std::vector<Snapshot> all, co_await snapshots_of(state, std::move(tenant), ""));
  std::erase_if(all, [&](const Snapshot& one) { return one.id != wanted && one.name != wanted; });
  co_return all;
}

Task<> remove_snapshot(State& state, std::string tenant, std::string id) {
  CO_TRY_VOID(co_await ask_node(state, "DELETE", "/v1/checkpoints/" + percent_encode(id), std::move(tenant)));
  co_return Result<>();
}

Task<control::Sandbox> make_from(State& state, std::string tenant, Snapshot from, CreateBody wanted, std::string document) {
  control::Sandbox sandbox;
  sandbox.tenant = std::move(tenant);
  sandbox.template_reference = from.template_reference;
  sandbox.cpus = from.cpus;
  sandbox.memory_mib = from.memory_mib;
  sandbox.disk_mib = from.disk_mib;
  sandbox.lineage = from.lineage.empty() ? from.sandbox : from.lineage;  // what its guest trusts
  sandbox.egress = std::move(document);
  co_return co_await launch(state, std::move(sandbox), std::move(wanted), std::move(from.id));
}

}  // namespace space::e2b
