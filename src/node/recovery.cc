#include "node/recovery.h"

#include <set>

#include "base/log.h"

namespace space::node {
namespace {

constexpr std::size_t kAtATime = 8;  // adoptions side by side: each waits for its guest more than it works

struct Work {
  Sandboxes& sandboxes;
  const Sandboxes::Parts& parts;
  vmm::Driver& driver;
  std::set<std::string> alive;  // VMs on this machine that are not accounted for yet
  Recovered counts;
};

asio::awaitable<bool> sweep(Work& work, std::string vm) {
  auto swept = co_await work.driver.sweep(vm);
  if (!swept) log::error("recovery.sweep_failed", {{"vm", vm}, {"error", swept.error()}});
  co_return swept.has_value();
}

asio::awaitable<void> finish_deletes(Work& work, std::vector<RecordStore::Found> trash) {
  for (const RecordStore::Found& found : trash) {
    if (found.record) {
      work.alive.erase(found.record->vm);
      std::string vm = found.record->vm;
      const bool swept = co_await sweep(work, std::move(vm));
      if (!swept) continue;  // its folder stays, so that the next start knows the VM
    }
    auto purge = [&]() -> Result<> {
      TRY_VOID(work.parts.vault.tidy(work.parts.records.trash_folder(found.id), {}));
      if (found.record && !found.record->saved.empty()) TRY_VOID(work.parts.vault.forget(found.record->tenant, found.record->saved));
      return work.parts.records.purge(found.id);
    };
    auto purged = co_await work.parts.disk.run(purge);
    if (!purged) log::error("recovery.purge_failed", {{"sandbox", found.id}, {"error", purged.error()}});
    ++work.counts.removed;
  }
}

// Before anything is collected: what a sandbox stands on is held, and its last checkpoint spares the next one what did not change.
asio::awaitable<void> hold(Work& work, std::shared_ptr<Sandbox> sandbox) {
  const SandboxRecord record = sandbox->record;
  Vault& vault = work.parts.vault;
  const std::string id = record.saved.empty() ? record.checkpoint : record.saved;
  auto last = [&vault, record, id]() -> Result<Checkpoint> { return vault.open(record.tenant, id); };
  if (!id.empty()) {
    auto found = co_await work.parts.disk.run(last);
    if (found && found->record.booted == record.booted && found->manifest.memory)
      sandbox->saved_memory = std::make_shared<const snapshot::MemoryState>(*found->manifest.memory);
  }
  const auto memory = sandbox->saved_memory;
  auto take = [&vault, record, memory] { return vault.hold(record.tenant, record.layers, memory.get()); };
  auto lease = co_await work.parts.disk.run(take);
  if (lease)
    sandbox->lease = std::move(*lease);
  else
    log::error("recovery.layers_missing", {{"sandbox", record.id}, {"error", lease.error()}});
}

asio::awaitable<void> put_back_ended(Work& work, SandboxRecord record, std::string reason) {
  const bool was_known = record.state == SandboxState::ended;
  record.state = SandboxState::ended;
  if (!was_known) record.end_reason = std::move(reason);
  if (!record.vm.empty()) co_await sweep(work, record.vm);
  if (!was_known && !record.vm.empty()) {
    auto stored = co_await work.parts.disk.run([&] { return work.parts.records.update(record); });
    if (!stored) log::error("sandbox.record_stale", {{"sandbox", record.id}, {"error", stored.error()}});
  }
  log::info("recovery.ended", {{"sandbox", record.id}, {"reason", record.end_reason}});
  ++work.counts.ended;
  auto sandbox = work.sandboxes.restore(std::move(record), {});
  if (!sandbox->record.layers.empty()) co_await hold(work, std::move(sandbox));
}

// Goes on after the node has begun to serve: a guest that does not answer holds up nobody. It stays all the same, since its
// sandbox is alive and its owner can delete it.
asio::awaitable<void> greet(Sandboxes::Parts parts, std::shared_ptr<Sandbox> sandbox) {
  const auto turn = co_await sandbox->strand.enter();
  if (sandbox->removing || sandbox->record.state != SandboxState::running) co_return;
  const SandboxRecord& record = sandbox->record;
  Spans unused(system_clock());
  Identity identity{record.id, record.hostname, record.machine_id, record.env, record.epoch, record.tenant, record.lineage, record.loaded};
  identity.names = sandbox->gateway_state;
  auto greeted = co_await parts.machines.activate(sandbox->machine, identity, unused);
  if (!greeted) log::warn("recovery.agent_silent", {{"sandbox", record.id}, {"error", greeted.error()}});
  if (!greeted || !record.loaded) co_return;
  sandbox->record.loaded = false;
  auto stored = co_await parts.disk.run([&] { return parts.records.update(record); });
  if (!stored) log::error("sandbox.record_stale", {{"sandbox", record.id}, {"error", stored.error()}});
}

asio::awaitable<void> adopt(Work& work, SandboxRecord record) {
  auto machine = co_await work.parts.machines.adopt(record.vm);
  if (!machine) {
    log::warn("recovery.adopt_failed", {{"sandbox", record.id}, {"vm", record.vm}, {"error", machine.error()}});
    co_await put_back_ended(work, std::move(record), "vmm_not_adoptable");
    co_return;
  }
  const auto state = machine->vm->state();
  if (state == vmm::VmState::ended || state == vmm::VmState::waiting) {
    *machine->on_end = nullptr;
    co_await put_back_ended(work, std::move(record), "vmm_gone");
    co_return;
  }
  const bool paused = record.state == SandboxState::paused;
  const auto folder = work.sandboxes.folder(record.id);
  auto sandbox = work.sandboxes.restore(std::move(record), std::move(*machine));
  auto known = [folder] { return read_gateway_state(folder); };
  sandbox->gateway_state = co_await work.parts.disk.run(known);
  co_await hold(work, sandbox);
  if (paused && state == vmm::VmState::running) {
    // Cut off between a resume and its record, or the other way round: the record is what was promised.
    Spans unused(work.parts.clock);
    const auto stood = co_await stand_still(work.parts.machines, sandbox->machine, unused);
    if (!stood) log::warn("recovery.pause_failed", {{"sandbox", sandbox->record.id}, {"error", stood.error()}});
    sandbox->record.unfrozen = !stood || !*stood;
    auto stored = co_await work.parts.disk.run([&] { return work.parts.records.update(sandbox->record); });
    if (!stored) log::error("sandbox.record_stale", {{"sandbox", sandbox->record.id}, {"error", stored.error()}});
  } else if (!paused) {
    spawn(co_await asio::this_coro::executor, greet(work.parts, sandbox));
  }
  log::info("recovery.adopted", {{"sandbox", sandbox->record.id}, {"vm", sandbox->record.vm}, {"state", to_string(sandbox->record.state)}});
  ++work.counts.adopted;
}

// Its VM, if there is one, is of a suspend or stop that was cut off after its record, or of a wake that was before it.
asio::awaitable<void> put_back_stored(Work& work, SandboxRecord record) {
  std::string vm = record.vm;
  (void)co_await sweep(work, std::move(vm));  // it has said so when it could not
  log::info("recovery.stored", {{"sandbox", record.id}, {"state", to_string(record.state)}});
  ++work.counts.stored;
  auto sandbox = work.sandboxes.restore(std::move(record), {});
  co_await hold(work, std::move(sandbox));
}

asio::awaitable<void> put_back(Work& work, RecordStore::Found found) {
  if (!found.record) {
    log::error("recovery.record_unreadable", {{"sandbox", found.id}, {"error", found.record.error()}});
    SandboxRecord unknown;
    unknown.id = found.id;
    unknown.state = SandboxState::running;
    co_await put_back_ended(work, std::move(unknown), "record_unreadable");
    co_return;
  }
  SandboxRecord record = std::move(*found.record);
  const bool alive = work.alive.erase(record.vm) > 0;
  if (record.state == SandboxState::suspended || record.state == SandboxState::stopped) {
    co_await put_back_stored(work, std::move(record));
  } else if (record.state == SandboxState::ended || !alive) {
    co_await put_back_ended(work, std::move(record), "vmm_gone");
  } else {
    co_await adopt(work, std::move(record));
  }
}

}  // namespace

Task<Recovered> recover(Sandboxes& sandboxes, const Sandboxes::Parts& parts, vmm::Driver& driver) {
  const RecordStore& records = parts.records;
  CO_TRY(auto trash, co_await parts.disk.run([&] { return records.trash(); }));
  CO_TRY(auto found, co_await parts.disk.run([&] { return records.sandboxes(); }));
  CO_TRY(auto folders, co_await parts.disk.run([&] { return records.pool(); }));
  CO_TRY(const auto vms, co_await driver.list());
  Work work{sandboxes, parts, driver, {vms.begin(), vms.end()}, {}};
  co_await finish_deletes(work, std::move(trash));

  const auto executor = co_await asio::this_coro::executor;
  Signal room(executor);
  std::size_t running = 0;
  for (RecordStore::Found& one : found) {
    while (running >= kAtATime) co_await room.wait();
    ++running;
    spawn(executor, [](Work& w, RecordStore::Found item, std::size_t& count, Signal& done) -> asio::awaitable<void> {
      co_await put_back(w, std::move(item));
      --count;
      done.notify_all();
    }(work, std::move(one), running, room));
  }
  while (running > 0) co_await room.wait();

  work.alive.insert(folders.begin(), folders.end());
  work.counts.leftovers.assign(work.alive.begin(), work.alive.end());
  co_return work.counts;
}

asio::awaitable<void> sweep_leftovers(std::vector<std::string> leftovers, const RecordStore& records, BlockingPool& disk,
                                      vmm::Driver& driver) {
  for (const std::string& vm : leftovers) {
    log::info("recovery.sweep", {{"vm", vm}});
    auto gone = co_await driver.sweep(vm);
    if (gone) gone = co_await disk.run([&] { return records.remove_pool_folder(vm); });
    if (!gone) log::error("recovery.sweep_failed", {{"vm", vm}, {"error", gone.error()}});
  }
}

}  // namespace space::node
