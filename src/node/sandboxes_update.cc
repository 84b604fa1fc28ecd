// Changes of a sandbox's settings. What node does something about is the environment and the size; labels, limits of time and the policy
// of rest are the control plane's, the network's policy the gateway's.
#include <fmt/format.h>

#include "base/log.h"
#include "node/busy.h"
#include "node/sandboxes.h"

namespace space::node {
namespace {

constexpr auto kSetLimit = std::chrono::seconds(10);

Result<> merge(std::map<std::string, std::string>& env, const std::map<std::string, std::optional<std::string>>& changes) {
  for (const auto& [name, value] : changes) {
    if (value)
      env[name] = *value;
    else
      env.erase(name);
  }
  return check_variables(env);
}

}  // namespace

Task<Done> Sandboxes::update(std::string id, std::string operation, SandboxChanges changes) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  CO_TRY_VOID(next_state(record.state, SandboxEvent::update));
  SandboxRecord changed = record;
  changed.last_operation = operation;
  CO_TRY_VOID(merge(changed.env, changes.env));
  changed.size.cpus = changes.cpus.value_or(record.size.cpus);
  changed.size.memory_mib = changes.memory_mib.value_or(record.size.memory_mib);
  const bool boots_next = record.state == SandboxState::stopped || record.state == SandboxState::ended;
  if (changed.size != record.size && !boots_next)
    co_return fail(ErrorKind::conflict, "size_in_memory",
                   fmt::format("the sandbox is {}: what is in its memory has the size that it has", to_string(record.state)),
                   "stop it first; it then starts from its disk with the new size");
  CO_TRY_VOID(co_await store(changed));
  if (record.state == SandboxState::running && changed.env != record.env) {
    auto told =
        co_await ask_agent(sandbox->machine, sandbox->machine.agent->set_environment(changed.env), kSetLimit, "take its environment");
    // An agent of an earlier version, out of a checkpoint, gets it with its next load.
    if (!told && told.error().kind != ErrorKind::not_found) {
      if (auto back = co_await store(record); !back) log::error("sandbox.record_stale", {{"sandbox", id}, {"error", back.error()}});
      co_return fail(std::move(told).error());
    }
  }
  record = std::move(changed);
  log::info("sandbox.updated", {{"sandbox", id}, {"operation", operation}});
  co_return Done{record, {}};
}

Task<> Sandboxes::set_mounts(std::string id, std::vector<VolumeMount> mounts) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  SandboxRecord changed = in.sandbox->record;
  changed.mounts = std::move(mounts);
  CO_TRY_VOID(co_await store(changed));
  in.sandbox->record = std::move(changed);
  co_return Result<>();
}

Task<> Sandboxes::set_kept(std::string id, std::string kept) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  SandboxRecord changed = in.sandbox->record;
  if (changed.vm.empty())  // nothing is written over a record that cannot be read
    co_return fail(ErrorKind::corrupt, "record_unreadable", "the sandbox's record cannot be read", "delete the sandbox");
  changed.kept = std::move(kept);
  CO_TRY_VOID(co_await store(changed));
  in.sandbox->record = std::move(changed);
  co_return Result<>();
}

std::vector<std::shared_ptr<Sandbox>> Sandboxes::with_mounts() const {
  std::vector<std::shared_ptr<Sandbox>> out;
  for (const auto& [id, sandbox] : table_)
    if (!sandbox->record.mounts.empty()) out.push_back(sandbox);
  return out;
}

}  // namespace space::node
