#include "e2b/copies.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "build/layers.h"
#include "e2b/volumes.h"

namespace space::e2b {
namespace {

constexpr std::size_t kAnswerLimit = 1 << 20;

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

}  // namespace

Task<std::vector<Snapshot>> snapshots_of(State& state, std::string tenant, std::string sandbox) {
  CO_TRY(std::vector<Snapshot> all, co_await control::list_checkpoints(state.parts.node, std::move(tenant), std::move(sandbox)));
  std::erase_if(all, [](const Snapshot& one) { return build::is_of_builds(one.name); });
  std::reverse(all.begin(), all.end());
  co_return all;
}

Task<std::vector<Snapshot>> find_snapshots(State& state, std::string tenant, std::string wanted) {
  CO_TRY(std::vector<Snapshot> all, co_await snapshots_of(state, std::move(tenant), ""));
  std::erase_if(all, [&](const Snapshot& one) { return one.id != wanted && one.name != wanted; });
  co_return all;
}

Task<> remove_snapshot(State& state, std::string tenant, std::string id) {
  CO_TRY_VOID(co_await ask_node(state, "DELETE", "/v1/checkpoints/" + percent_encode(id), std::move(tenant)));
  co_return co_await forget_mounts_of_snapshot(state, std::move(id));
}

Task<control::Sandbox> make_from(State& state, std::string tenant, Snapshot from, CreateBody wanted, std::string document) {
  const control::Parent parent(std::move(tenant), from);
  control::Sandbox sandbox = control::child_of(parent, {}, state.parts.clock.wall_ms());
  sandbox.egress = std::move(document);
  co_return co_await launch(state, std::move(sandbox), std::move(wanted), std::move(from.id));
}

}  // namespace space::e2b
