#include <fmt/format.h>

#include "base/log.h"
#include "egress/parent.h"

namespace space::egress {
namespace {

constexpr std::chrono::milliseconds kShortest{100}, kLongest{5'000};
constexpr std::chrono::seconds kLongLife{30};

json::array texts(const std::vector<std::string>& list) {
  json::array out;
  for (const std::string& text : list) out.emplace_back(text);
  return out;
}

std::string text_at(const json::object& body, std::string_view key) {
  const auto* value = body.if_contains(key);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace

void Parent::ensure_worker(const std::string& tenant) {
  TenantWorker& worker = workers_[tenant];
  if (worker.kept) return;
  worker.kept = true;
  // Begun here, so that whoever called may talk to it at once.
  if (const auto begun = begin_worker(tenant, worker); !begun)
    log::error("egress.worker_not_started", {{"tenant", tenant}, {"error", begun.error()}});
  spawn(executor_, keep_worker(tenant));
}

// Starts the tenant's worker again when it dies, and lets it go when the tenant has no sandbox left.
asio::awaitable<void> Parent::keep_worker(std::string tenant) {
  auto wait = kShortest;
  for (;;) {
    const auto started = std::chrono::steady_clock::now();
    if (const auto process = workers_[tenant].process) {
      co_await process->ended();
      workers_[tenant].process.reset();
      workers_[tenant].given.clear();
    }
    if (!used(tenant)) break;
    figures_.worker_died();
    if (std::chrono::steady_clock::now() - started > kLongLife) wait = kShortest;
    log::warn("egress.worker_died", {{"tenant", tenant}, {"again_in_ms", std::int64_t{wait.count()}}});
    co_await sleep_for(wait);
    wait = std::min(wait * 2, kLongest);
    if (!used(tenant)) break;
    TenantWorker& worker = workers_[tenant];
    if (const auto begun = begin_worker(tenant, worker); !begun)
      log::error("egress.worker_not_started", {{"tenant", tenant}, {"error", begun.error()}});
  }
  workers_.erase(tenant);
}

Result<> Parent::begin_worker(const std::string& tenant, TenantWorker& worker) {
  const auto spawn_worker = config_.spawn_worker ? config_.spawn_worker : [level = config_.log_level](Fd channel) {
    return spawn_this_program(std::move(channel), level);
  };
  TRY(worker.process, WorkerProcess::start(executor_, spawn_worker, [this, tenant](const json::object& body) { heard(tenant, body); }));
  worker.given.clear();
  Message start;
  start.body = {{"type", "start"},
                {"tenant", tenant},
                {"resolvers", texts(resolvers_)},
                {"allowed_ranges", texts(config_.allowed_ranges)},
                {"ca_file", config_.ca_file.string()}};
  worker.process->tell(std::move(start));
  Message own;
  own.body = {{"type", "own"}, {"addresses", texts(own_addresses_)}};
  worker.process->tell(std::move(own));
  give_secrets(tenant, *worker.process);
  for (auto& [id, sandbox] : sandboxes_)
    if (sandbox->tenant == tenant) introduce(*worker.process, worker, *sandbox);
  return {};
}

void Parent::introduce(WorkerProcess& process, TenantWorker& worker, ParentSandbox& sandbox) {
  worker.given.insert(sandbox.id);
  Message settings;
  settings.body = {{"type", "sandbox"}, {"sandbox", sandbox.id}, {"names", sandbox.names.to_json()}, {"total_bytes", sandbox.total_bytes}};
  // Without them the policy is none.
  if (sandbox.settings && !sandbox.held) settings.body["settings"] = sandbox.settings->document;
  process.tell(std::move(settings));
  if (sandbox.sockets.empty()) return;
  Message sockets;
  sockets.body = {{"type", "sockets"}, {"sandbox", sandbox.id}};
  for (const Fd& fd : sandbox.sockets) {
    auto copy = fd.duplicate();
    if (!copy) return log::error("egress.no_descriptor", {{"sandbox", sandbox.id}, {"error", copy.error()}});
    sockets.fds.push_back(std::move(*copy));
  }
  process.tell(std::move(sockets));
}

Task<> Parent::tell_worker(std::string tenant, Message message) {
  const auto found = workers_.find(tenant);
  if (found == workers_.end() || !found->second.process) co_return Result<>();
  const auto process = found->second.process;
  const std::string id = text_at(message.body, "sandbox");
  // A sandbox that this process has not met yet is introduced whole, its names and sockets too.
  if (ParentSandbox* sandbox = find(id); sandbox && !found->second.given.contains(id) && text_at(message.body, "type") != "remove")
    introduce(*process, found->second, *sandbox);
  auto answer = co_await process->call(std::move(message));
  if (answer || answer.error().code == "worker_lost") co_return Result<>();
  co_return fail(std::move(answer).error());
}

Result<> Parent::catch_up(ParentSandbox& sandbox) {
  // With a sync, on the loop: no other writing of the same names may come between. A guest that asks for many has it done once a second.
  const auto now = std::chrono::steady_clock::now();
  if (now - sandbox.caught_up < std::chrono::seconds(1))
    return fail(ErrorKind::unavailable, "names_not_kept", "names of this sandbox could not be written a moment ago",
                "see the gateway's log, and its disk; then try again");
  sandbox.caught_up = now;
  auto kept = records_.save_names(sandbox.id, sandbox.names);
  sandbox.names_behind = !kept;
  if (!kept) log::error("egress.name_not_kept", {{"sandbox", sandbox.id}, {"error", kept.error()}});
  return kept;
}

// A worker may have been taken over: what it says concerns sandboxes of its own tenant alone.
void Parent::heard(const std::string& tenant, const json::object& body) {
  const std::string type = text_at(body, "type");
  if (type == "event") {
    const auto* event = body.if_contains("event");
    if (!event || !event->is_object()) return;
    const ParentSandbox* sandbox = find(text_at(event->get_object(), "sandbox"));
    if (!sandbox || sandbox->tenant != tenant) return;
    json::object copy = event->get_object();
    figures_.decided(copy);
    return audit_.append(tenant, std::move(copy));
  }
  ParentSandbox* sandbox = find(text_at(body, "sandbox"));
  if (!sandbox || sandbox->tenant != tenant) return;
  if (type == "name") {
    const auto* number = body.if_contains("number");
    const std::string name = text_at(body, "name");
    if (!number || !number->is_int64() || number->get_int64() < 1 || number->get_int64() > NameMap::kMost) return;
    const auto added = sandbox->names.append(static_cast<std::uint32_t>(number->get_int64()), name);
    if (!added) return log::error("egress.bad_name", {{"sandbox", sandbox->id}, {"error", added.error()}});
    // Some microseconds: a write without a sync. One that was not written, as on a full disk, would leave its number to the next one.
    if (sandbox->names_behind) return (void)catch_up(*sandbox);
    if (const auto kept = records_.add_name(sandbox->id, name); !kept) {
      log::error("egress.name_not_kept", {{"sandbox", sandbox->id}, {"error", kept.error()}});
      sandbox->names_behind = true;
    }
  } else if (type == "counters") {
    const auto* counters = body.if_contains("counters");
    if (!counters || !counters->is_object() || counters->get_object().size() > 16) return;
    const auto* traffic = body.if_contains("traffic");
    if (traffic && traffic->is_object() && traffic->get_object().size() <= 16) sandbox->traffic = traffic->get_object();
    if (sandbox->names_behind) (void)catch_up(*sandbox);
    figures_.counted(sandbox->counters, counters->get_object());
    sandbox->counters = counters->get_object();
    const auto* total = sandbox->counters.if_contains("total_bytes");
    if (total && total->is_int64() && total->get_int64() > sandbox->total_bytes) {
      sandbox->total_bytes = total->get_int64();
      // Some microseconds, and only where it decides something.
      if (sandbox->settings && sandbox->settings->limits.total_bytes > 0)
        if (const auto kept = records_.save_total(sandbox->id, sandbox->total_bytes); !kept)
          log::error("egress.total_not_kept", {{"sandbox", sandbox->id}, {"error", kept.error()}});
    }
    sandbox->counters.erase("total_bytes");
  }
}

}  // namespace space::egress
