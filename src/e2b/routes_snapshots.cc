// Forks and snapshots. A snapshot is a native checkpoint, or without the memory a native snapshot of the disk, from which sandboxes boot:
// its id, or the name that the client gave it, with ":default" where it has no tag.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "e2b/builds.h"
#include "e2b/copies.h"
#include "e2b/render.h"
#include "e2b/request.h"
#include "e2b/state.h"
#include "e2b/volumes.h"

namespace space::e2b {
namespace {

using control::OperationKind;
using control::Sandbox;

constexpr std::int64_t kMostForks = 100;

// A name without its tag; of the "default" one SPACE keeps no tag.
std::string bare(const std::string& name) { return name.substr(0, name.find(':')); }

json::object render(const Snapshot& snapshot) {
  const std::string& name = snapshot.name.empty() ? snapshot.id : snapshot.name;
  json::array names;
  if (!snapshot.name.empty()) names.emplace_back(bare(name));
  return {{"snapshotID", name.find(':') == name.npos ? name + ":default" : name}, {"names", std::move(names)}};
}

Task<Found> find_running(State& state, const http::Exchange& exchange) {
  CO_TRY(Found found, co_await find(state, exchange));
  if (!found.running)
    co_return fail(ErrorKind::conflict, "sandbox_paused", fmt::format("sandbox {} is paused", found.sandbox.id),
                   "connect to it first: that wakes it");
  co_return found;
}

Task<> take(State& state, const Sandbox& sandbox, OperationKind kind, std::string id, std::string name) {
  const json::object request{{"checkpoint", std::move(id)}, {"name", std::move(name)}};
  CO_TRY_VOID(co_await change(state, sandbox.tenant, sandbox.id, kind, json::serialize(request)));
  co_return Result<>();
}

Task<> create_snapshot(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const std::string given = r.text("name", 0, 128, "");
  const bool memory = r.boolean("memory", true);
  CO_TRY_VOID(r.done());
  Snapshot snapshot;
  snapshot.id = new_id();
  if (!given.empty()) {
    CO_TRY(const std::string reference, template_reference(given));
    snapshot.name = template_id_of(reference);
    const auto size = co_await state.parts.node.template_size(reference);
    if (size)
      co_return fail(ErrorKind::conflict, "name_taken", fmt::format("there is a template of the name '{}'", snapshot.name),
                     "choose another name");
  }
  CO_TRY(const Found found, co_await find_running(state, exchange));
  const OperationKind kind = memory ? OperationKind::checkpoint : OperationKind::snapshot;
  CO_TRY_VOID(co_await take(state, found.sandbox, kind, snapshot.id, snapshot.name));
  CO_TRY_VOID(co_await keep_mounts_of_snapshot(state, snapshot.id, found.settings->mounts));
  co_return co_await reply(exchange, 201, render(snapshot));
}

Task<> list_snapshots(State& state, http::Exchange& exchange) {
  const http::Target& target = exchange.target();
  CO_TRY(const std::size_t limit, read_limit(target));
  std::string sandbox, name;
  if (const auto given = target.query_value("sandboxID"); given && !given->empty()) {
    CO_TRY(sandbox, sandbox_id(*given));
  }
  bool tagged = false;
  if (const auto given = target.query_value("name"); given && !given->empty()) {
    tagged = given->find(':') != given->npos;
    CO_TRY(const std::string reference, template_reference(*given));
    name = template_id_of(reference);
  }
  CO_TRY(std::vector<Snapshot> all, co_await snapshots_of(state, tenant_of(exchange), sandbox));
  const auto matches = [&](const Snapshot& one) { return name.empty() || one.id == name || (tagged ? one.name : bare(one.name)) == name; };
  std::erase_if(all, [&](const Snapshot& one) { return !matches(one); });
  // The token is the id of the last one that was shown.
  if (const auto token = target.query_value("nextToken"); token && !token->empty()) {
    const auto seen = std::find_if(all.begin(), all.end(), [&](const Snapshot& one) { return one.id == *token; });
    if (seen == all.end())
      co_return fail(ErrorKind::invalid_argument, "invalid_request", "nextToken leads on from a snapshot that is not there",
                     "list from the start");
    all.erase(all.begin(), seen + 1);
  }
  json::array out;
  for (std::size_t i = 0; i < std::min(limit, all.size()); ++i) out.push_back(render(all[i]));
  http::Response response = http::json_response(200, json::serialize(out));
  if (all.size() > limit) response.headers.set("X-Next-Token", all[limit - 1].id);
  co_return co_await exchange.reply(std::move(response));
}

// All that were taken under the name.
Task<> delete_template(State& state, http::Exchange& exchange) {
  CO_TRY(const std::string reference, template_reference(exchange.param("template")));
  const std::string wanted = template_id_of(reference);
  CO_TRY(const bool built, co_await remove_built(state, exchange));
  if (built) co_return co_await reply_empty(exchange);
  CO_TRY(const std::vector<Snapshot> found, co_await find_snapshots(state, tenant_of(exchange), wanted));
  if (found.empty())
    co_return fail(ErrorKind::not_found, "template_not_found", fmt::format("there is no snapshot '{}' of yours", wanted),
                   "templates are removed with `space template rm`");
  for (const Snapshot& one : found) CO_TRY_VOID(co_await remove_snapshot(state, tenant_of(exchange), one.id));
  co_return co_await reply_empty(exchange);
}

// The children of one fork, made side by side: each comes to be or not for itself.
struct Children {
  explicit Children(asio::any_io_executor executor) : done(std::move(executor)) {}
  Signal done;
  std::size_t left = 0;
  std::vector<json::object> answers;
};

Task<json::object> make_child(State& state, std::string tenant, Snapshot from, CreateBody wanted, std::string document) {
  CO_TRY(const Sandbox child, co_await make_from(state, std::move(tenant), std::move(from), std::move(wanted), std::move(document)));
  CO_TRY(const auto settings, co_await settings_of(state, child.id));
  CO_TRY(const Tokens tokens, co_await tokens_of(state, child));
  co_return json::object{{"sandbox", render_sandbox(child, *settings, tokens)}};
}

asio::awaitable<void> add_child(State& state, std::string tenant, Snapshot from, CreateBody wanted, std::string document,
                                std::shared_ptr<Children> all) {
  auto made = co_await make_child(state, std::move(tenant), std::move(from), std::move(wanted), std::move(document));
  if (made)
    all->answers.push_back(std::move(*made));
  else
    all->answers.push_back(json::object{{"error", error_body(made.error())}});
  --all->left;
  all->done.notify_all();
}

// What the parent is at this moment, and its network as it is in force now.
Task<json::array> fork_now(State& state, Found found, std::size_t count, std::int64_t seconds) {
  const Sandbox parent = found.sandbox;
  std::string document;
  Snapshot from{new_id(), "", parent.id, parent.id, parent.template_reference, parent.cpus, parent.memory_mib, parent.disk_mib};
  if (state.parts.egress) {
    CO_TRY(control::EgressSettings egress, co_await state.parts.store.find_egress(parent.tenant, parent.id));
    if (egress.generation > 0) document = std::move(egress.document);
    if (!egress.lineage.empty()) from.lineage = egress.lineage;
  }
  CO_TRY_VOID(co_await take(state, parent, OperationKind::checkpoint, from.id, ""));
  CreateBody wanted;
  wanted.metadata = control::Parent(parent).metadata;
  wanted.settings = *found.settings;
  wanted.settings.made_here = true;
  wanted.settings.timeout_s = seconds;
  wanted.settings.started_ms = wanted.settings.paused_ms = 0;
  auto all = std::make_shared<Children>(state.parts.executor);
  all->left = count;
  for (std::size_t i = 0; i < count; ++i) spawn(state.parts.executor, add_child(state, parent.tenant, from, wanted, document, all));
  while (all->left > 0) co_await all->done.wait();
  // E2B's forks leave no snapshot. What the children stand on stays as long as they do.
  const auto removed = co_await remove_snapshot(state, parent.tenant, from.id);
  if (!removed) log::warn("e2b.checkpoint_left", {{"checkpoint", from.id}, {"error", removed.error()}});
  json::array out;
  for (json::object& one : all->answers) out.push_back(std::move(one));
  co_return out;
}

Task<> fork(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(const std::int64_t seconds, read_timeout(body, "timeout", 15));
  JsonReader r(body);
  r.ignore_unknown();
  const std::int64_t count = r.number("count", 1, kMostForks, 1);
  CO_TRY_VOID(r.done());
  if (seconds <= 0) co_return fail(ErrorKind::invalid_argument, "invalid_request", "Timeout must be greater than 0");
  CO_TRY(Found found, co_await find_running(state, exchange));
  CO_TRY(const json::array out, co_await fork_now(state, std::move(found), static_cast<std::size_t>(count), seconds));
  co_return co_await reply(exchange, 201, out);
}

}  // namespace

void add_snapshot_routes(State& state) {
  add(state, "POST", "/sandboxes/{id}/snapshots", create_snapshot);
  add(state, "POST", "/sandboxes/{id}/fork", fork);
  add(state, "GET", "/snapshots", list_snapshots);
  add(state, "DELETE", "/templates/{template}", delete_template);
}

}  // namespace space::e2b
