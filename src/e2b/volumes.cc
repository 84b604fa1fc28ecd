#include "e2b/volumes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "control/volumes.h"
#include "e2b/network.h"
#include "e2b/request.h"

namespace space::e2b {
namespace {

using control::OperationKind;
using control::Sandbox;
using control::SandboxState;

constexpr std::size_t kPage = 500;
constexpr int kMostTries = 20;
constexpr std::chrono::milliseconds kAgain{250};
constexpr std::chrono::seconds kLongestRest{90};
constexpr std::string_view kTokenPrefix = "vol_";

auto no_volume(const std::string& id) {
  return fail(ErrorKind::not_found, "volume_not_found",
              fmt::format("there is no volume '{}' of yours", is_utf8(id) ? id.substr(0, 80) : "?"), "see what there is: list the volumes");
}

std::string note_of(const std::string& snapshot) { return "mounts-of-snapshot:" + snapshot; }

}  // namespace

Task<Sandbox> find_volume(State& state, std::string tenant, std::string id) {
  if (!is_id(id)) co_return no_volume(id);
  auto found = co_await state.parts.store.find_sandbox(std::move(tenant), id);
  if (!found && found.error().kind != ErrorKind::not_found) co_return fail(std::move(found).error());
  if (!found || !control::is_volume_there(*found)) co_return no_volume(id);
  co_return std::move(*found);
}

Task<std::vector<Sandbox>> volumes_of(State& state, std::string tenant, std::string name) {
  std::vector<Sandbox> out;
  for (control::Page page{0, kPage};;) {
    control::SandboxFilter filter;
    filter.metadata[control::kKindLabel] = control::kVolumeKind;
    if (!name.empty()) filter.metadata = {{control::kVolumeName, name}};
    CO_TRY(const auto some, co_await state.parts.store.list_sandboxes(tenant, page, std::move(filter)));
    std::copy_if(some.begin(), some.end(), std::back_inserter(out), control::is_volume_there);
    if (some.size() < kPage) co_return out;
    page.before = some.back().sequence;
  }
}

Task<Sandbox> make_volume(State& state, std::string tenant, std::string name) {
  if (!control::is_volume_name(name)) co_return invalid_request("a volume's name has 1 to 128 of letters, digits, dash and underscore");
  CO_TRY(const control::TemplateSize size, co_await state.parts.node.template_size(control::kVolumeTemplate));
  Sandbox volume = control::new_volume(std::move(tenant), std::move(name), size, state.parts.clock.wall_ms());
  if (state.parts.egress) {
    CO_TRY(volume.egress, egress_document({}, false, {}));  // nothing of it goes out
  }
  CreateBody wanted;
  wanted.metadata = volume.metadata;
  wanted.settings.made_here = true;
  wanted.settings.public_traffic = false;
  wanted.settings.timeout_s = 0;  // no limit
  auto made = co_await launch(state, std::move(volume), std::move(wanted), "");
  // E2B's clients know it as a wrong request.
  if (!made && made.error().code == "volume_exists") made.error().kind = ErrorKind::invalid_argument;
  co_return made;
}

Task<> remove_volume(State& state, Sandbox volume) {
  CO_TRY_VOID(co_await change(state, volume.tenant, volume.id, OperationKind::remove));
  state.known.erase(volume.id);
  co_return Result<>();
}

Task<> wake_volume(State& state, Sandbox volume) {
  Result<> last;
  for (int tries = 0; tries < kMostTries; ++tries) {
    (void)co_await state.parts.engine.wait_for_rest(volume.id, kLongestRest);  // one that is just being put away
    CO_TRY(volume, co_await find_volume(state, volume.tenant, volume.id));
    if (is_running(volume.state)) co_return Result<>();
    // Somebody else may be at it, which is as good.
    if (volume.state != SandboxState::creating) {
      auto woken = co_await change(state, volume.tenant, volume.id,
                                   volume.state == SandboxState::ended ? OperationKind::start : OperationKind::wake);
      if (woken) co_return Result<>();
      last = fail(std::move(woken).error());
      log::info("e2b.volume_not_woken", {{"volume", volume.id}, {"error", last.error()}});
    }
    co_await sleep_for(kAgain);
  }
  if (!last) co_return last;
  co_return fail(ErrorKind::unavailable, "volume_not_ready", "the volume was not ready in time", "try again in a moment");
}

Task<std::string> volume_token(State& state, const Sandbox& volume) {
  CO_TRY(const Tokens tokens, co_await tokens_of(state, volume));
  co_return std::string(kTokenPrefix) + tokens.traffic;
}

Task<> admit_to_volume(State& state, http::Exchange& exchange, std::string token) {
  const auto& path = exchange.target().segments;
  const std::string id = path.size() > 1 ? path[1] : "";
  if (token.empty())
    co_return fail(ErrorKind::unauthenticated, "token_missing", "this request needs the volume's token in the header Authorization",
                   "connect to the volume: the SDK then sends it");
  if (!is_id(id)) co_return no_volume(id);
  auto found = co_await state.parts.store.find_any_sandbox(id);
  if (!found && found.error().kind != ErrorKind::not_found) co_return fail(std::move(found).error());
  if (!found || !control::is_volume_there(*found)) co_return no_volume(id);
  CO_TRY(const std::string wanted, co_await volume_token(state, *found));
  if (!equal_constant_time(token, wanted))
    co_return fail(ErrorKind::unauthenticated, "token_invalid", "this is not the token of this volume", "connect to the volume anew");
  exchange.attributes["tenant"] = found->tenant;
  co_return Result<>();
}

Task<> find_mounts(State& state, std::string tenant, std::vector<VolumeMount>& mounts) {
  for (VolumeMount& mount : mounts) {
    CO_TRY(const auto found, co_await volumes_of(state, tenant, mount.name));
    if (found.empty())
      co_return fail(ErrorKind::invalid_argument, "volume_not_found",
                     fmt::format("there is no volume '{}' of yours", is_utf8(mount.name) ? mount.name.substr(0, 80) : "?"),
                     "create it first");
    mount.volume = found.front().id;
  }
  co_return Result<>();
}

Task<> mount_volumes(State& state, Sandbox sandbox, std::vector<VolumeMount> mounts) {
  // At once, in place of at node's next look.
  for (const VolumeMount& mount : mounts) {
    CO_TRY(Sandbox volume, co_await find_volume(state, sandbox.tenant, mount.volume));
    CO_TRY_VOID(co_await wake_volume(state, std::move(volume)));
  }
  json::array list;
  for (const VolumeMount& mount : mounts) list.push_back(json::object{{"volume", mount.volume}, {"path", mount.path}});
  http::Request request;
  request.method = "PUT";
  request.target = fmt::format("/v1/sandboxes/{}/mounts", sandbox.id);
  request.headers.set("Space-Tenant", sandbox.tenant);
  request.headers.set("Content-Type", "application/json");
  request.body = json::serialize(json::object{{"mounts", std::move(list)}});
  auto answer = co_await state.parts.node.forwarding().request(std::move(request));
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return Result<>();
}

Task<> keep_mounts_of_snapshot(State& state, std::string snapshot, std::vector<VolumeMount> mounts) {
  if (mounts.empty()) co_return Result<>();
  const json::object note{{"mounts", encode_mounts(mounts)}};
  co_return co_await state.parts.store.put_settings(note_of(snapshot), json::serialize(note));
}

Task<std::vector<VolumeMount>> mounts_of_snapshot(State& state, std::string tenant, std::string snapshot) {
  CO_TRY(const std::string text, co_await state.parts.store.find_settings(note_of(snapshot)));
  std::vector<VolumeMount> out;
  if (text.empty()) co_return out;
  CO_TRY(const json::object note, parse_json_object(text));
  JsonReader r(note);
  const json::array* list = r.array("mounts", kMostMounts);
  CO_TRY_VOID(r.done());
  if (list) {
    CO_TRY(out, decode_mounts(*list));
  }
  for (auto at = out.begin(); at != out.end();) {
    const auto volume = co_await find_volume(state, tenant, at->volume);
    at = volume ? std::next(at) : out.erase(at);
  }
  co_return out;
}

Task<> forget_mounts_of_snapshot(State& state, std::string snapshot) {
  CO_TRY(const std::string text, co_await state.parts.store.find_settings(note_of(snapshot)));
  if (text.empty()) co_return Result<>();
  co_return co_await state.parts.store.put_settings(note_of(snapshot), "");  // and it is swept in a day
}

}  // namespace space::e2b
