#include "node/mounts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "http/byte_stream.h"
#include "node/guest_error.h"
#include "node/open_stream.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kMountLook{250};
constexpr seconds kAgentLimit{10}, kPatience{45}, kAskAgain{2}, kTryAgain{2};

bool runs(const Sandbox& sandbox) {
  return sandbox.record.state == SandboxState::running && !sandbox.resting && !sandbox.removing && !sandbox.gone && sandbox.machine;
}

// A pause in memory keeps the VM, and with it the link.
bool is_over(const Sandbox& sandbox, const std::string& machine) {
  return sandbox.gone || sandbox.removing || sandbox.machine.id != machine ||
         (sandbox.record.state != SandboxState::running && sandbox.record.state != SandboxState::paused);
}

struct Opened {
  std::unique_ptr<http::ClientStream> stream;
  http::Response head;
};

// A connection of an agent's that carries FUSE from here on.
Task<Opened> open_wire(std::shared_ptr<Sandbox> sandbox, std::string target) {
  const std::string doing = "connect a volume";
  http::Request request;
  request.target = std::move(target);
  request.upgrade = "fuse";
  CO_TRY(const auto agent, sandbox->agent());
  Opened out;
  CO_TRY(out.stream, co_await ask_agent(sandbox->machine, agent->http().open(std::move(request)), kAgentLimit, doing));
  CO_TRY(out.head, co_await ask_agent(sandbox->machine, out.stream->head(), kAgentLimit, doing));
  if (out.head.status == 101) co_return out;
  const auto body = co_await out.stream->read_all(64 << 10);
  co_return fail(guest_error(body ? http::error_from_response(out.head.status, *body) : body.error(), doing));
}

Error not_found(const std::string& volume) {
  return {ErrorKind::not_found, "volume_not_found", fmt::format("there is no volume {}", volume), "list the volumes"};
}

}  // namespace

Mounts::Mounts(asio::any_io_executor executor, Sandboxes& sandboxes, Events& events)
    : executor_(executor), sandboxes_(sandboxes), events_(events), changed_(executor) {}

std::shared_ptr<Sandbox> Mounts::volume_of(const Sandbox& sandbox, const std::string& volume) const {
  auto found = sandboxes_.find(volume);
  return found && !found->gone && !found->removing && found->record.tenant == sandbox.record.tenant ? found : nullptr;
}

Mounts::Told Mounts::wanted(const Sandbox& sandbox) const {
  Told out{sandbox.machine.id, {}};
  for (const VolumeMount& mount : sandbox.record.mounts)
    if (volume_of(sandbox, mount.volume)) out.paths.push_back(mount.path);
  return out;
}

Task<> Mounts::tell(std::shared_ptr<Sandbox> sandbox, Told now) {
  http::Request request;
  request.method = "PUT";
  request.target = "/v1/mounts";
  request.headers.set("Content-Type", "application/json");
  request.body = json::serialize(json::object{{"paths", json::value_from(now.paths)}});
  CO_TRY(const auto agent, sandbox->agent());
  auto done = co_await ask_agent(sandbox->machine, agent->http().call(std::move(request), 64 << 10), kAgentLimit, "mount its volumes");
  // An agent of an earlier version, out of a checkpoint.
  if (!done && done.error().code == "not_found")
    co_return fail(ErrorKind::unsupported, "volume_unsupported", "this sandbox comes from a time before volumes",
                   "make a new one of its template");
  if (!done) co_return fail(std::move(done).error());
  told_[sandbox->record.id] = std::move(now);
  co_return Result<>();
}

void Mounts::ask_for(const std::string& volume) {
  auto& asked = asked_[volume];
  if (asked != Clock::time_point{} && Clock::now() - asked < kAskAgain) return;
  asked = Clock::now();
  events_.publish("volume_wanted", volume, "");
}

Task<> Mounts::carry(std::shared_ptr<Sandbox> sandbox, VolumeMount mount, std::shared_ptr<Sandbox> volume, std::string key) {
  const auto known = told_.find(sandbox->record.id);
  if (known == told_.end() || known->second != wanted(*sandbox)) CO_TRY_VOID(co_await tell(sandbox, wanted(*sandbox)));
  auto opened = co_await open_wire(sandbox, "/v1/mounts/link?path=" + percent_encode(mount.path));
  if (!opened) {
    told_.erase(sandbox->record.id);  // perhaps somebody there has unmounted it
    co_return fail(std::move(opened).error());
  }
  const Opened client = std::move(*opened);
  const std::string mounting(client.head.headers.get("Space-Mount"));
  if (!is_id(mounting)) co_return fail(agent_not_answering("connect a volume", "the mount has no name"));
  CO_TRY(const Opened server,
         co_await open_wire(volume, fmt::format("/v1/volume/link?client={}.{}.{}", sandbox->record.id, sandbox->record.epoch, mounting)));
  const auto near = client.stream->upgraded(), far = server.stream->upgraded();
  const auto cut = [a = near.get(), b = far.get()] {
    a->cut();
    b->cut();
  };
  const OpenStream open(volume, cut);  // while bytes flow the volume is in use
  Link& link = links_[key];
  link.cut = cut;
  link.works = true;
  link.failure.reset();
  changed_.notify_all();
  log::info("volume.linked", {{"sandbox", sandbox->record.id}, {"volume", volume->record.id}, {"path", mount.path}});
  if (stopping_) co_return Result<>();
  co_await http::splice(*near, *far);
  if (const auto ours = links_.find(key); ours != links_.end()) ours->second.cut = [] {};
  co_return Result<>();
}

void Mounts::make_link(const std::shared_ptr<Sandbox>& sandbox, const VolumeMount& mount, const std::shared_ptr<Sandbox>& volume,
                       const std::string& key) {
  Link& link = links_[key];
  link.volume = mount.volume;
  link.machine = sandbox->machine.id;
  link.busy = true;
  auto work = [](std::shared_ptr<Mounts> self, std::shared_ptr<Sandbox> from, VolumeMount which, std::shared_ptr<Sandbox> to,
                 std::string name) -> asio::awaitable<void> {
    const auto began = Clock::now();
    auto done = co_await self->carry(from, which, to, name);
    Link& ended = self->links_[name];
    if (!done) log::warn("volume.not_linked", {{"sandbox", from->record.id}, {"volume", which.volume}, {"error", done.error()}});
    ended.works = ended.busy = false;
    ended.failure = done ? std::nullopt : std::optional(done.error());
    // A link that ends at once while both run was ended by a guest, which could keep this process busy with it.
    const bool by_guest = runs(*from) && runs(*to) && Clock::now() - began < kTryAgain;
    ended.again = Clock::now() + (done && !by_guest ? milliseconds(0) : milliseconds(kTryAgain));
    self->changed_.notify_all();
  };
  spawn(executor_, work(shared_from_this(), sandbox, mount, volume, key));
}

void Mounts::look_at(const std::shared_ptr<Sandbox>& sandbox) {
  if (!runs(*sandbox)) return;
  bool told = true;
  for (const VolumeMount& mount : sandbox->record.mounts) {
    const std::string key = key_of(*sandbox, mount.path);
    const auto volume = volume_of(*sandbox, mount.volume);
    const auto known = links_.find(key);
    if (!volume) {
      told = false;  // who waits for it in the guest is to be told
      continue;
    }
    if (known != links_.end() && (known->second.busy || Clock::now() < known->second.again)) continue;
    if (runs(*volume))
      make_link(sandbox, mount, volume, key);
    else
      ask_for(mount.volume);
  }
  const auto before = told_.find(sandbox->record.id);
  if (told || (before != told_.end() && before->second == wanted(*sandbox))) return;
  told_[sandbox->record.id] = wanted(*sandbox);  // once; a guest that does not take it waits on
  auto work = [](std::shared_ptr<Mounts> self, std::shared_ptr<Sandbox> whom) -> asio::awaitable<void> {
    if (auto done = co_await self->tell(whom, self->wanted(*whom)); !done)
      log::warn("volume.loss_not_told", {{"sandbox", whom->record.id}, {"error", done.error()}});
  };
  spawn(executor_, work(shared_from_this(), sandbox));
}

asio::awaitable<void> Mounts::keep() {
  const auto self = shared_from_this();
  while (!stopping_) {
    for (auto at = links_.begin(); at != links_.end();) {
      const std::string id = at->first.substr(0, at->first.find(':')), path = at->first.substr(id.size() + 1);
      const auto sandbox = sandboxes_.find(id);
      const auto still = [&](const VolumeMount& mount) { return mount.path == path && mount.volume == at->second.volume; };
      const bool wanted = sandbox && std::any_of(sandbox->record.mounts.begin(), sandbox->record.mounts.end(), still);
      if (at->second.busy && (!wanted || is_over(*sandbox, at->second.machine))) at->second.cut();
      at = at->second.busy || wanted ? std::next(at) : links_.erase(at);
    }
    std::erase_if(told_, [&](const auto& one) { return !sandboxes_.find(one.first); });
    std::erase_if(asked_, [&](const auto& one) { return !sandboxes_.find(one.first); });
    for (const auto& sandbox : sandboxes_.with_mounts()) look_at(sandbox);
    (void)co_await changed_.wait_for(kMountLook);
  }
}

void Mounts::stop() {
  stopping_ = true;
  for (auto& [key, link] : links_) link.cut();
  changed_.notify_all();
}

bool Mounts::all_work(const Sandbox& sandbox) const {
  return std::all_of(sandbox.record.mounts.begin(), sandbox.record.mounts.end(), [&](const VolumeMount& mount) {
    const auto found = links_.find(key_of(sandbox, mount.path));
    return found != links_.end() && found->second.works && found->second.volume == mount.volume &&
           found->second.machine == sandbox.machine.id;
  });
}

std::optional<Error> Mounts::first_failure(const Sandbox& sandbox) const {
  for (const VolumeMount& mount : sandbox.record.mounts)
    if (const auto found = links_.find(key_of(sandbox, mount.path)); found != links_.end() && found->second.failure)
      return found->second.failure;
  return std::nullopt;
}

Task<> Mounts::set(std::shared_ptr<Sandbox> sandbox, std::vector<VolumeMount> mounts) {
  for (const VolumeMount& mount : mounts)
    if (mount.volume == sandbox->record.id || !volume_of(*sandbox, mount.volume)) co_return fail(not_found(mount.volume));
  const std::string id = sandbox->record.id;
  for (auto& [key, link] : links_)  // what failed before may work now
    if (!link.busy && key.starts_with(id + ":")) {
      link.failure.reset();
      link.again = {};
    }
  Told kept{sandbox->machine.id, {}};  // of the same volume as before: another one's files have other numbers, so that is mounted anew
  for (const VolumeMount& mount : sandbox->record.mounts)
    if (std::find(mounts.begin(), mounts.end(), mount) != mounts.end()) kept.paths.push_back(mount.path);
  CO_TRY_VOID(co_await sandboxes_.set_mounts(id, std::move(mounts)));
  if (!runs(*sandbox)) co_return Result<>();
  if (kept != wanted(*sandbox)) CO_TRY_VOID(co_await tell(sandbox, std::move(kept)));
  CO_TRY_VOID(co_await tell(sandbox, wanted(*sandbox)));
  changed_.notify_all();
  for (const auto until = Clock::now() + kPatience; Clock::now() < until && runs(*sandbox);) {
    if (all_work(*sandbox)) co_return Result<>();
    // A volume that is just being put away or woken refuses: that passes.
    if (auto failure = first_failure(*sandbox); failure && failure->kind != ErrorKind::conflict && failure->kind != ErrorKind::unavailable)
      co_return fail(*failure);
    (void)co_await changed_.wait_for(kMountLook);
  }
  if (auto failure = first_failure(*sandbox)) co_return fail(*failure);
  co_return fail(ErrorKind::unavailable, "volume_not_ready", "the volume was not ready in time", "try again in a moment");
}

}  // namespace space::node
