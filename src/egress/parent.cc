#include "egress/parent.h"

#include <array>
#include <fmt/format.h>
#include <ifaddrs.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "egress/event.h"
#include "egress/resolver.h"
#include "egress/socket_address.h"

namespace space::egress {
namespace {

constexpr std::size_t kMostSandboxes = 10'000;
constexpr std::size_t kMostChanges = 64;

tl::unexpected<Error> no_such_sandbox() {
  return fail(ErrorKind::not_found, "sandbox_not_found", "the gateway knows no such sandbox", "set its policy first");
}

Result<std::vector<Fd>> copies(const std::vector<Fd>& fds) {
  std::vector<Fd> out;
  for (const Fd& fd : fds) {
    TRY(Fd copy, fd.duplicate());
    out.push_back(std::move(copy));
  }
  return out;
}

std::vector<std::string> host_addresses() {
  std::vector<std::string> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    SocketAddress address;
    address.length = i->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, i->ifa_addr, address.length);
    if (const auto endpoint = from_socket_address(address)) out.push_back(endpoint->address.text());
  }
  ::freeifaddrs(list);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

// One coroutine at a time changes a sandbox.
class Parent::Turn {
 public:
  static asio::awaitable<std::unique_ptr<Turn>> take(Parent& parent, std::string id) {
    while (parent.entry(id).busy) co_await parent.changed_.wait();
    parent.entry(id).busy = true;
    co_return std::make_unique<Turn>(parent, id);
  }
  Turn(Parent& parent, std::string id) : parent_(parent), alive_(parent.alive_), id_(std::move(id)) {}
  ~Turn() {
    if (alive_.expired()) return;  // the loop is destroyed with this coroutine in it
    if (ParentSandbox* sandbox = parent_.find(id_)) {
      sandbox->busy = false;
      if (!sandbox->settings && sandbox->load.empty() && sandbox->names.size() == 0 && sandbox->changes.empty())
        parent_.sandboxes_.erase(id_);
    }
    parent_.changed_.notify_all();
  }
  ParentSandbox& operator*() { return parent_.entry(id_); }

 private:
  Parent& parent_;
  std::weak_ptr<char> alive_;
  std::string id_;
};

Parent::Parent(asio::any_io_executor executor, const EgressConfig& config, BlockingPool& disk, AuditLog& audit, Vault vault)
    : executor_(executor),
      config_(config),
      disk_(disk),
      audit_(audit),
      records_(config.data_dir / "egress" / "sandboxes"),
      vault_(std::move(vault)),
      changed_(executor) {}

Result<> Parent::open() {
  TRY_VOID(records_.open());
  TRY_VOID(vault_.open());
  TRY(auto found, records_.load());
  own_addresses_ = host_addresses();
  resolvers_ = config_.resolvers;
  if (resolvers_.empty())
    if (const auto text = read_file("/etc/resolv.conf", 1 << 20))
      for (const Endpoint& server : Resolver::parse_resolv_conf(*text)) resolvers_.push_back(server.text());
  for (auto& [id, record] : found) {
    ParentSandbox& sandbox = entry(id);
    sandbox.names = std::move(record.names);
    sandbox.total_bytes = std::max<std::int64_t>(record.total_bytes, 0);
    sandbox.changes = std::move(record.changes);
    sandbox.held = !sandbox.changes.empty();
    if (sandbox.held) log::warn("egress.policy_held", {{"sandbox", id}, {"changes", static_cast<std::int64_t>(sandbox.changes.size())}});
    if (record.settings.empty()) continue;
    auto settings = Settings::parse(record.settings);
    if (!settings) {
      log::error("egress.bad_record", {{"sandbox", id}, {"error", settings.error()}});
      continue;
    }
    sandbox.tenant = settings->tenant;
    sandbox.settings = std::make_unique<Settings>(std::move(*settings));
  }
  return {};
}

ParentSandbox& Parent::entry(const std::string& id) {
  auto& sandbox = sandboxes_[id];
  if (!sandbox) {
    sandbox = std::make_unique<ParentSandbox>();
    sandbox->id = id;
  }
  return *sandbox;
}

ParentSandbox* Parent::find(const std::string& id) {
  const auto found = sandboxes_.find(id);
  return found == sandboxes_.end() ? nullptr : found->second.get();
}

const ParentSandbox* Parent::find(const std::string& id) const {
  const auto found = sandboxes_.find(id);
  return found == sandboxes_.end() ? nullptr : found->second.get();
}

Task<> Parent::put(std::string id, Settings settings, std::vector<std::string> settles) {
  if (!find(id) && sandboxes_.size() >= kMostSandboxes)
    co_return fail(ErrorKind::resource_exhausted, "gateway_full", "the gateway has as many sandboxes as it takes");
  const auto turn = co_await Turn::take(*this, id);
  ParentSandbox& sandbox = **turn;
  if (!sandbox.tenant.empty() && sandbox.tenant != settings.tenant)
    co_return fail(ErrorKind::conflict, "tenant_mismatch", "this sandbox belongs to another tenant");
  if (const Settings* present = sandbox.settings.get()) {
    if (present->lineage != settings.lineage) co_return fail(ErrorKind::conflict, "lineage_changed", "a sandbox keeps its lineage");
    if (settings.generation < present->generation)
      co_return fail(ErrorKind::conflict, "stale_generation", fmt::format("generation {} is in force already", present->generation),
                     "read the present settings and try again");
    if (settings.generation == present->generation) {
      if (present->document == settings.document) co_return co_await end_put(sandbox, std::move(settles));
      co_return fail(ErrorKind::conflict, "generation_reused", "these settings differ from those of the same generation",
                     "use the next generation");
    }
  }
  CO_TRY_VOID(co_await ensure_lineage(settings.tenant, settings.lineage));
  const json::object document = settings.document;
  auto save = [&] { return records_.save(id, document); };
  CO_TRY_VOID(co_await disk_.run(std::ref(save)));
  sandbox.tenant = settings.tenant;
  sandbox.settings = std::make_unique<Settings>(std::move(settings));
  ensure_worker(sandbox.tenant);
  if (!sandbox.held) {
    Message message;
    message.body = {{"type", "sandbox"}, {"sandbox", id}, {"settings", document}};
    const std::string tenant = sandbox.tenant;
    CO_TRY_VOID(co_await tell_worker(tenant, std::move(message)));
  }
  co_return co_await end_put(sandbox, std::move(settles));
}

Task<> Parent::end_put(ParentSandbox& sandbox, std::vector<std::string> settles) {
  CO_TRY_VOID(co_await settle(sandbox, std::move(settles)));
  if (!sandbox.held) co_return Result<>();
  co_return fail(ErrorKind::unavailable, "policy_held",
                 "the settings are kept and not in force: another change of them began before the gateway did and has not ended",
                 "try again in a moment; the sandbox has no network meanwhile");
}

Task<> Parent::settle(ParentSandbox& sandbox, std::vector<std::string> changes) {
  std::set<std::string> left = sandbox.changes;
  for (const std::string& change : changes) left.erase(change);
  if (left.size() == sandbox.changes.size()) co_return Result<>();
  auto save = [&] { return records_.save_changes(sandbox.id, left); };
  CO_TRY_VOID(co_await disk_.run(std::ref(save)));
  sandbox.changes = std::move(left);
  if (!sandbox.held || !sandbox.changes.empty()) co_return Result<>();
  sandbox.held = false;
  if (!sandbox.settings) co_return Result<>();
  Message message;
  message.body = {{"type", "sandbox"}, {"sandbox", sandbox.id}, {"settings", sandbox.settings->document}};
  const std::string tenant = sandbox.tenant;
  co_return co_await tell_worker(tenant, std::move(message));
}

Task<> Parent::announce(std::string id, std::string change) {
  if (!find(id) && sandboxes_.size() >= kMostSandboxes)
    co_return fail(ErrorKind::resource_exhausted, "gateway_full", "the gateway has as many sandboxes as it takes");
  const auto turn = co_await Turn::take(*this, id);
  ParentSandbox& sandbox = **turn;
  std::set<std::string> changes = sandbox.changes;
  if (!changes.insert(std::move(change)).second) co_return Result<>();
  if (changes.size() > kMostChanges)
    co_return fail(ErrorKind::resource_exhausted, "too_many_changes", "so many changes of this policy are under way already",
                   "wait for some to end");
  auto save = [&] { return records_.save_changes(id, changes); };
  CO_TRY_VOID(co_await disk_.run(std::ref(save)));
  sandbox.changes = std::move(changes);
  co_return Result<>();
}

Task<> Parent::withdraw(std::string id, std::string change) {
  if (!find(id)) co_return Result<>();
  const auto turn = co_await Turn::take(*this, id);
  std::vector<std::string> changes{std::move(change)};
  co_return co_await settle(**turn, std::move(changes));
}

Task<> Parent::remove(std::string id) {
  if (!find(id)) co_return Result<>();
  const auto turn = co_await Turn::take(*this, id);
  ParentSandbox& sandbox = **turn;
  auto forget = [&] { return records_.remove(id); };
  CO_TRY_VOID(co_await disk_.run(std::ref(forget)));
  const std::string tenant = sandbox.tenant;
  sandbox.settings.reset();
  sandbox.changes.clear();
  sandbox.held = false;
  sandbox.names = NameMap();
  sandbox.names_behind = false;
  sandbox.load.clear();
  sandbox.sockets.clear();
  Message message;
  message.body = {{"type", "remove"}, {"sandbox", id}};
  CO_TRY_VOID(co_await tell_worker(tenant, std::move(message)));
  if (!tenant.empty() && !used(tenant))
    if (const auto found = workers_.find(tenant); found != workers_.end() && found->second.process) found->second.process->end();
  co_return Result<>();
}

Task<> Parent::attach(std::string id, std::string tenant, std::string load, std::vector<Fd> sockets) {
  if (!find(id) && sandboxes_.size() >= kMostSandboxes)
    co_return fail(ErrorKind::resource_exhausted, "gateway_full", "the gateway has as many sandboxes as it takes");
  const auto turn = co_await Turn::take(*this, id);
  ParentSandbox& sandbox = **turn;
  if (!sandbox.tenant.empty() && sandbox.tenant != tenant)
    co_return fail(ErrorKind::conflict, "tenant_mismatch", "this sandbox belongs to another tenant");
  sandbox.tenant = tenant;
  sandbox.load = std::move(load);
  sandbox.sockets = std::move(sockets);
  ensure_worker(tenant);
  Message message;
  message.body = {{"type", "sockets"}, {"sandbox", id}};
  CO_TRY(message.fds, copies(sandbox.sockets));
  co_return co_await tell_worker(tenant, std::move(message));
}

Task<> Parent::detach(std::string id, std::string load) {
  if (!find(id)) co_return Result<>();
  const auto turn = co_await Turn::take(*this, id);
  ParentSandbox& sandbox = **turn;
  if (sandbox.load != load) co_return Result<>();
  sandbox.load.clear();
  sandbox.sockets.clear();
  const std::string tenant = sandbox.tenant;
  if (!sandbox.settings) sandbox.tenant.clear();
  Message message;
  message.body = {{"type", "detach"}, {"sandbox", id}};
  co_return co_await tell_worker(tenant, std::move(message));
}

Task<> Parent::put_names(std::string id, NameMap names) {
  if (!find(id) && sandboxes_.size() >= kMostSandboxes)
    co_return fail(ErrorKind::resource_exhausted, "gateway_full", "the gateway has as many sandboxes as it takes");
  const auto turn = co_await Turn::take(*this, id);
  ParentSandbox& sandbox = **turn;
  const auto& now = sandbox.names.names();
  const auto& given = names.names();
  // A sandbox that goes back to a checkpoint has been told more since then, and keeps it: what it may remember means the same.
  if (!std::equal(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(std::min(now.size(), given.size())), given.begin()))
    co_return fail(ErrorKind::conflict, "names_in_use", "this sandbox has been told other addresses already",
                   "set the names before its sockets are handed over");
  if (given.size() <= now.size()) co_return Result<>();
  auto save = [&] { return records_.save_names(id, names); };
  CO_TRY_VOID(co_await disk_.run(std::ref(save)));
  sandbox.names = std::move(names);
  sandbox.names_behind = false;
  if (sandbox.tenant.empty()) co_return Result<>();
  Message message;
  message.body = {{"type", "sandbox"}, {"sandbox", id}, {"names", sandbox.names.to_json()}};
  if (sandbox.settings && !sandbox.held) message.body["settings"] = sandbox.settings->document;
  const std::string tenant = sandbox.tenant;
  co_return co_await tell_worker(tenant, std::move(message));
}

Task<json::object> Parent::names(std::string id) {
  const ParentSandbox* s = find(id);
  if (!s) co_return no_such_sandbox();
  // The worker answers in order: what it told a guest before this question has been heard here when the answer comes.
  const auto worker = workers_.find(s->tenant);
  if (const auto process = worker == workers_.end() ? nullptr : worker->second.process) {
    Message message;
    message.body = {{"type", "sync"}};
    (void)co_await process->call(std::move(message));
  }
  if (ParentSandbox* const behind = find(id); behind && behind->names_behind) CO_TRY_VOID(catch_up(*behind));
  auto keep = [this, id] { return records_.sync_names(id); };
  CO_TRY_VOID(co_await disk_.run(keep));
  s = find(id);
  if (!s) co_return no_such_sandbox();
  co_return s->names.to_json();
}

asio::awaitable<void> Parent::watch_own_addresses() {
  for (;;) {
    co_await sleep_for(std::chrono::seconds(10));
    auto read = [] { return host_addresses(); };
    auto now = co_await disk_.run(read);
    if (now == own_addresses_) continue;
    own_addresses_ = std::move(now);
    for (auto& [tenant, worker] : workers_) {
      if (!worker.process) continue;
      Message message;
      json::array list;
      for (const std::string& text : own_addresses_) list.emplace_back(text);
      message.body = {{"type", "own"}, {"addresses", std::move(list)}};
      worker.process->tell(std::move(message));
    }
  }
}

Result<> Parent::refused(const std::string& id, const wire::Refusals& grown) {
  const ParentSandbox* sandbox = find(id);
  if (!sandbox) return no_such_sandbox();
  struct Meaning {
    std::string_view kind, reason;
  };
  static constexpr std::array<Meaning, wire::kRefusals.size()> kMeanings{{
      {"security", "packets with another sender's address, or of no known kind, were dropped"},
      {"connection", "nothing but TCP connections and DNS questions leaves a sandbox"},
      {"limit", "more new TCP connections a second than a sandbox may open"},
      {"limit", "more TCP connections at once than a sandbox may have"},
      {"limit", "more DNS questions at once than a sandbox may have"},
  }};
  figures_.refused(grown);
  for (std::size_t i = 0; i < grown.size(); ++i) {
    if (grown[i] == 0) continue;
    Event event;
    event.sandbox = id;
    event.kind = kMeanings[i].kind;
    event.verdict = "deny";
    event.reason = kMeanings[i].reason;
    event.count = grown[i];
    json::object body = event.to_json();
    figures_.decided(body);
    audit_.append(sandbox->tenant, std::move(body));
  }
  return {};
}

Result<json::object> Parent::state(const std::string& id) const {
  const ParentSandbox* s = find(id);
  if (!s) return no_such_sandbox();
  json::object out{{"sandbox", id},   {"tenant", s->tenant},      {"attached", !s->load.empty()},
                   {"load", s->load}, {"names", s->names.size()}, {"counters", s->counters}};
  const auto worker = workers_.find(s->tenant);
  out["serving"] = !s->load.empty() && worker != workers_.end() && worker->second.process && worker->second.process->alive();
  if (s->settings)
    for (const auto& [key, value] : s->settings->document) out[key] = value;
  if (!out.contains("policy") || out["policy"].is_null()) out["policy"] = json::object{{"mode", "none"}};
  if (!s->settings) out["generation"] = 0;
  json::array changes;
  for (const std::string& change : s->changes) changes.emplace_back(change);
  out["changes"] = std::move(changes);
  out["held"] = s->held;
  return out;
}

json::array Parent::states() const {
  json::array out;
  for (const auto& [id, sandbox] : sandboxes_) out.push_back(*state(id));
  return out;
}

json::array Parent::traffic() const {
  json::array out;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (sandbox->load.empty()) continue;
    json::object one{{"sandbox", id}};
    for (const char* name : {"open", "connections", "bytes"}) {
      const json::value* value = sandbox->traffic.if_contains(name);
      // What a worker says wrongly is its own tenant's loss, and not that of who reads all.
      one[name] = value && value->is_int64() ? std::clamp<std::int64_t>(value->get_int64(), 0, INT64_MAX / 4) : 0;
    }
    out.push_back(std::move(one));
  }
  return out;
}

Result<const Settings*> Parent::settings(const std::string& id) const {
  const ParentSandbox* s = find(id);
  if (!s) return no_such_sandbox();
  static const Settings kNone;
  return s->settings ? s->settings.get() : &kNone;
}

Task<json::object> Parent::observed(std::string id) {
  const ParentSandbox* s = find(id);
  if (!s) co_return no_such_sandbox();
  const auto worker = workers_.find(s->tenant);
  const auto process = worker == workers_.end() ? nullptr : worker->second.process;
  if (!process)
    co_return fail(ErrorKind::unavailable, "worker_lost", "the tenant's worker of the gateway is being started", "try again in a moment");
  Message message;
  message.body = {{"type", "observed"}, {"sandbox", id}};
  CO_TRY(json::object answer, co_await process->call(std::move(message)));
  answer.erase("type");
  answer.erase("call");
  co_return answer;
}

json::object Parent::info() const {
  json::array workers;
  for (const auto& [tenant, worker] : workers_) {
    if (!worker.process) continue;
    const auto count =
        std::count_if(sandboxes_.begin(), sandboxes_.end(), [&tenant = tenant](const auto& s) { return s.second->tenant == tenant; });
    workers.push_back(json::object{{"tenant", tenant}, {"pid", worker.process->pid()}, {"sandboxes", count}});
  }
  return {{"version", SPACE_VERSION}, {"sandboxes", sandboxes_.size()}, {"workers", std::move(workers)}};
}

std::string Parent::figures() const {
  Figures::Now now;
  now.sandboxes = sandboxes_.size();
  now.workers = static_cast<std::uint64_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const auto& w) { return w.second.process != nullptr; }));
  now.credentials = vault_.size();
  for (const auto& [id, sandbox] : sandboxes_) {
    now.names += sandbox->names.size();
    if (sandbox->load.empty()) continue;
    ++now.attached;
    if (const auto* open = sandbox->counters.if_contains("open"); open && open->is_int64() && open->get_int64() > 0)
      now.open_connections += static_cast<std::uint64_t>(open->get_int64());
  }
  return figures_.text(now);
}

bool Parent::used(const std::string& tenant) const {
  return std::any_of(sandboxes_.begin(), sandboxes_.end(),
                     [&](const auto& s) { return s.second->tenant == tenant && (s.second->settings || !s.second->load.empty()); });
}

}  // namespace space::egress
