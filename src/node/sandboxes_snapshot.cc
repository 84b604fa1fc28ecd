// Snapshots of the disk alone: taken while the sandbox goes on, and ways back to one. The guest is asked to write what it has in memory
// and has a limited time for it; then the disk gets its next generation, in an instant, and the one before is frozen. What a guest that
// did not answer had not written is not in the snapshot: it is then as after a power cut.
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "node/busy.h"
#include "node/sandboxes.h"
#include "snapshot/generations.h"

namespace space::node {
namespace {

constexpr auto kSnapshotFlush = std::chrono::seconds(5);

}  // namespace

Task<Done> Sandboxes::snapshot(std::string id, SnapshotOrder wanted) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter_with_room(id));
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  const std::string tenant = record.tenant, made = wanted.snapshot;
  auto known = [this, tenant, made] { return parts_.vault.open(tenant, made); };
  if (auto there = co_await parts_.disk.run(known); there && there->manifest.sandbox == id) co_return Done{record, {}};
  CO_TRY_VOID(next_state(record.state, SandboxEvent::snapshot));
  Spans spans(parts_.clock);
  CO_TRY(const BasePtr base, co_await base_under(sandbox));
  if (sandbox->machine) co_await parts_.machines.flush(sandbox->machine, kSnapshotFlush, spans);
  CO_TRY_VOID(co_await check_room(record, true));
  if (wanted.automatic && disk_mark(id) == sandbox->snapshot_mark) co_return Done{record, {}};  // it worked, and wrote nothing
  auto order = std::make_shared<Vault::Order>();
  const auto folder = parts_.records.folder(id);
  for (const std::string& disk : record.disks) order->disks.push_back(folder / disk);
  CO_TRY_VOID(co_await add_generation(sandbox, base, spans));
  if (sandbox->machine) {
    const Spans::Step step(spans, "switch");
    if (auto switched = co_await switch_generation(sandbox); !switched) {
      co_await drop_generation(sandbox);
      co_return fail(std::move(switched).error());
    }
  }
  sandbox->snapshot_mark = disk_mark(id);
  const Spans::Step storing(spans, "store");
  order->kind = snapshot::CheckpointKind::file_snapshot;
  order->id = made;
  order->name = std::move(wanted.name);
  order->automatic = wanted.automatic;
  order->record = record;
  order->vmm_build = parts_.vmm_build;
  order->now_ms = parts_.clock.wall_ms();
  auto keep = [this, order] { return parts_.vault.keep_disk(*order); };
  CO_TRY(Vault::Kept kept, co_await storing_.run(keep));
  SandboxRecord changed = record;
  changed.layers = kept.layers;
  changed.disks = {record.disks.back()};
  CO_TRY_VOID(co_await stand_on(sandbox, std::move(changed)));
  const bool full = record.layers.size() >= snapshot::most_generations(base->disk.size());
  if (full) merge_soon(sandbox);
  if (!sandbox->machine) {
    const auto disks = record.disks;
    auto tidy = [this, folder, disks] { return parts_.vault.tidy(folder, disks); };
    if (auto tidied = co_await parts_.disk.run(tidy); !tidied)
      log::warn("sandbox.files_left", {{"sandbox", id}, {"error", tidied.error()}});
  }
  if (order->automatic) parts_.events.publish("sandbox_snapshot", id, made);
  log::info("sandbox.snapshot", {{"sandbox", id},
                                 {"snapshot", made},
                                 {"automatic", order->automatic ? "yes" : "no"},
                                 {"bytes", static_cast<std::int64_t>(kept.own_bytes)}});
  co_return Done{record, spans.take()};
}

std::int64_t Sandboxes::disk_mark(const std::string& id) const {
  const auto sandbox = find(id);
  struct stat st {};
  if (!sandbox || ::stat((parts_.records.folder(id) / sandbox->record.disks.back()).c_str(), &st) != 0) return 0;
  return std::int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
}

// Boots a VM on the snapshot's disk beside the one that there is, then puts it in its place.
Task<Done> Sandboxes::restore_disk(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed, std::shared_ptr<const Checkpoint> from,
                                   Spans& spans) {
  const SandboxRecord record = sandbox->record;
  CO_TRY(const BasePtr base, co_await base_of(from->record));
  const std::string vm = new_id(), generation = "disk-" + new_id(), id = record.id, tenant = record.tenant;
  const auto folder = parts_.records.folder(id), path = folder / generation;
  changed.vm = vm;
  changed.size = from->record.size;
  changed.base_key = from->record.base_key;
  changed.base_content = from->record.base_content;
  changed.vmm_build = parts_.vmm_build;  // it boots: its VM is of today
  changed.state_key = parts_.machines.state_key("");
  changed.layers = from->record.layers;
  changed.disks = {generation};
  changed.booted = true;
  changed.inherited = 0;
  changed.saved.clear();
  changed.end_reason.clear();
  auto hold = [this, tenant, from] { return parts_.vault.hold(tenant, from->record.layers, nullptr); };
  CO_TRY(auto lease, co_await parts_.disk.run(hold));
  auto remove = [path]() -> Result<> { return remove_tree(path); };
  auto file = co_await new_generation(path, base);
  Result<Machine> machine = fail(ErrorKind::internal, "no_machine", "");
  if (file)
    machine = co_await booted_machine(changed, folder, vm, spans);
  else
    machine = fail(std::move(file).error());
  if (!machine) {
    (void)co_await parts_.disk.run(remove);
    co_return fail(std::move(machine).error());
  }
  std::shared_ptr<const snapshot::MemoryState> memory;
  co_return co_await replace(sandbox, std::move(changed), std::move(*machine), false, std::move(lease), std::move(memory), spans);
}

Task<Done> Sandboxes::set_snapshots(std::string id, std::int64_t every_s, std::int64_t keep) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  SandboxRecord changed = in.sandbox->record;
  changed.snapshot_every_s = every_s;
  changed.snapshot_keep = keep;
  CO_TRY_VOID(co_await store(changed));
  in.sandbox->record = changed;
  co_return Done{std::move(changed), {}};
}

}  // namespace space::node
