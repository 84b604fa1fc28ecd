// Checkpoints: taking one while the sandbox goes on, going back to one, and new sandboxes out of one.
//
// The guest stands still only while devices and changed pages are read and the disk's next generation is put on top. The record
// names that generation before it is used: an empty image on top changes nothing, so the record is right before and after.
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <future>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "node/busy.h"
#include "node/sandboxes.h"
#include "snapshot/generations.h"

namespace space::node {
namespace {

using namespace asio::experimental::awaitable_operators;

constexpr auto kListLimit = std::chrono::seconds(5);
constexpr auto kCheckpointFlush = std::chrono::seconds(1);  // of a checkpoint, whose memory has the rest

Error other_sandbox() {
  return {ErrorKind::conflict, "checkpoint_of_another", "this checkpoint is of another sandbox", "create a sandbox from it"};
}

}  // namespace

Task<Fd> Sandboxes::new_generation(std::filesystem::path path, BasePtr base, bool durable) {
  auto make = [path, base, durable]() -> Result<Fd> {
    TRY(Fd file, open_file(path, O_RDWR | O_CREAT | O_EXCL));
    auto fill = [&]() -> Result<> {
      TRY_VOID(copy_file_sparse(base->empty_overlay, file));
      if (!durable) return {};
      if (::fdatasync(file.get()) != 0) return fail_errno(errno, "sync a disk image");
      return sync_directory(path.parent_path());
    };
    if (auto filled = fill(); !filled) {
      ::unlink(path.c_str());  // on a full disk nothing may stay of the attempt
      return fail(std::move(filled).error());
    }
    return file;
  };
  co_return co_await parts_.disk.run(make);
}

Task<> Sandboxes::add_generation(std::shared_ptr<Sandbox> sandbox, BasePtr base, Spans& spans) {
  const Spans::Step step(spans, "disk");
  SandboxRecord& record = sandbox->record;
  const std::string generation = "disk-" + new_id();
  const auto path = parts_.records.folder(record.id) / generation;
  sandbox->switched = false;
  CO_TRY(const Fd overlay, co_await new_generation(path, base, false));
  SandboxRecord named = record;
  named.disks.push_back(generation);
  // The VM opens it while it becomes durable and known; nothing is written to it before both are done.
  auto name = [&]() -> Task<> {
    auto sync = [&]() -> Result<> {
      auto staging =
          std::async(std::launch::async, [&] { return parts_.records.stage(named); });  // what waits together becomes durable together
      if (::fdatasync(overlay.get()) != 0) return fail_errno(errno, "sync a disk image");
      TRY_VOID(sync_directory(path.parent_path()));  // before the record names it
      TRY(StagedFile staged, staging.get());
      return staged.publish();
    };
    co_return co_await parts_.disk.run(sync);
  };
  auto open = [&]() -> Task<> {
    if (!sandbox->machine) co_return Result<>{};
    const Spans::Step opening(spans, "open");
    co_return co_await sandbox->machine.vm->prepare_disk(overlay);
  };
  auto naming = name();
  auto opening = open();
  auto [known, opened] = co_await (std::move(naming) && std::move(opening));
  if (known && opened) {
    record.disks = named.disks;
    co_return Result<>{};
  }
  if (opened && sandbox->machine)
    if (auto closed = co_await sandbox->machine.vm->discard_disk(); !closed)
      log::warn("vm.disk_left_open", {{"sandbox", record.id}, {"error", closed.error()}});
  auto remove = [path]() -> Result<> { return remove_tree(path); };
  const auto back = co_await store(record);
  if (back) (void)co_await parts_.disk.run(remove);
  co_return fail(known ? std::move(opened).error() : std::move(known).error());
}

Task<> Sandboxes::switch_generation(std::shared_ptr<Sandbox> sandbox) {
  CO_TRY_VOID(co_await sandbox->machine.vm->switch_disk());
  sandbox->switched = true;
  co_return Result<>{};
}

asio::awaitable<void> Sandboxes::drop_generation(std::shared_ptr<Sandbox> sandbox) {
  if (sandbox->switched || !sandbox->machine || sandbox->vmm_gone || sandbox->record.disks.size() < 2) co_return;
  if (auto closed = co_await sandbox->machine.vm->discard_disk(); !closed) co_return;  // it stands on it all the same, or cannot be asked
  SandboxRecord fewer = sandbox->record;
  const auto path = parts_.records.folder(fewer.id) / fewer.disks.back();
  fewer.disks.pop_back();
  if (auto stored = co_await store(fewer); !stored) co_return;
  sandbox->record.disks = fewer.disks;
  auto remove = [path]() -> Result<> { return remove_tree(path); };
  (void)co_await parts_.disk.run(remove);
}

Task<Done> Sandboxes::checkpoint(std::string id, std::string operation, std::string checkpoint, std::string name) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter_with_room(id));
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  if (record.checkpoint == checkpoint && record.last_operation == operation) co_return Done{record, {}};
  CO_TRY(const SandboxState next, next_state(record.state, SandboxEvent::checkpoint));
  const bool ran = record.state == SandboxState::running;
  if (record.unfrozen) co_return fail(guest_not_frozen("resume it, and try again"));
  Spans spans(parts_.clock);
  CO_TRY(const bool whole, co_await was_kept(sandbox, operation, checkpoint));
  if (whole) co_return Done{record, {}};
  CO_TRY(const BasePtr base, co_await base_under(sandbox));

  const auto folder = parts_.records.folder(id);
  const std::vector<std::string> disks = record.disks;
  auto captured = std::make_shared<Capture>();
  CO_TRY_VOID(co_await prepare_checkpoint(sandbox, base, *captured, spans));
  const auto order = order_of(*sandbox, *base, checkpoint);
  order->name = std::move(name);
  order->record.state = SandboxState::running;
  for (const std::string& disk : disks) order->disks.push_back(folder / disk);
  std::optional<Resting> resting;
  if (ran) resting.emplace(*sandbox);
  const Result<> taken = co_await capture_and_switch(sandbox, order, captured, spans);

  // Whatever came of it, the guest goes on: first of all, since what is done beside it takes a processor from it, and without waiting for
  // the disk of the store.
  Result<> back;
  if (ran) back = co_await parts_.machines.resume(sandbox->machine, spans);
  auto wake = [&]() -> Task<> {
    if (ran && back) back = co_await go_on(sandbox, spans);
    resting.reset();
    co_return back;
  };
  const auto after = [&](const std::vector<snapshot::BlobRef>& layers) {
    SandboxRecord changed = record;
    changed.state = record.state == SandboxState::ended ? record.state : next;
    changed.layers = layers;
    changed.disks = {record.disks.back()};
    changed.checkpoint = checkpoint;
    changed.last_operation = operation;
    return changed;
  };
  // The record that is to follow waits for the disk beside the manifest, and gets its name behind it.
  std::string staged_text;
  std::optional<StagedFile> staged;
  auto keep = [&]() -> Task<Vault::Kept> {
    if (!taken) co_return fail(taken.error());
    const Spans::Step step(spans, "store");
    CO_TRY(Vault::Draft draft, co_await gather(order, captured));
    const SandboxRecord following = after(draft.kept.layers);
    staged_text = encode_record(following);
    auto stage = [&]() -> Task<> {
      auto work = [this, &following] { return parts_.records.stage(following); };
      if (auto ready = co_await parts_.disk.run(work)) staged.emplace(std::move(*ready));
      co_return Result<>{};  // else it is written when it is due, and fails there
    };
    auto staging = stage();
    auto publishing = publish(order, std::move(draft));
    auto [ready, kept] = co_await (std::move(staging) && std::move(publishing));
    co_return std::move(kept);
  };
  auto waking = wake();
  auto keeping = keep();
  auto [woken, kept] = co_await (std::move(waking) && std::move(keeping));
  if (kept && !woken) {
    const std::string tenant = record.tenant;
    auto forget = [this, tenant, checkpoint] { return parts_.vault.forget(tenant, checkpoint); };
    if (auto gone = co_await parts_.disk.run(forget); !gone)
      log::warn("checkpoint.left", {{"checkpoint", checkpoint}, {"error", gone.error()}});
    co_return fail(std::move(woken).error());
  }
  if (!kept) {
    co_await drop_generation(sandbox);  // that its VM did not switch to
    co_return fail(std::move(kept).error());
  }
  SandboxRecord changed = after(kept->layers);
  const Spans::Step step(spans, "record");
  if (staged && encode_record(changed) == staged_text) {
    auto publish = [&] { return staged->publish(); };
    CO_TRY_VOID(co_await parts_.disk.run(publish));
  } else {
    CO_TRY_VOID(co_await store(changed));
  }
  record = std::move(changed);
  if (sandbox->machine.memory) sandbox->machine.memory->dirty->confirm();
  sandbox->saved_memory = kept->memory;
  sandbox->lease = std::move(kept->lease);
  const bool full = record.layers.size() >= snapshot::most_generations(base->disk.size());
  if (full) merge_soon(sandbox);
  log::info("sandbox.checkpointed",
            {{"sandbox", id}, {"operation", operation}, {"checkpoint", checkpoint}, {"bytes", static_cast<std::int64_t>(kept->own_bytes)}});
  co_return Done{record, spans.take()};
}

std::shared_ptr<Vault::Order> Sandboxes::order_of(const Sandbox& sandbox, const tmpl::Base& base, std::string id) const {
  auto order = std::make_shared<Vault::Order>();
  order->id = std::move(id);
  order->record = sandbox.record;
  order->vmm_build = sandbox.record.vmm_build.empty() ? parts_.vmm_build : sandbox.record.vmm_build;
  order->memory_base = sandbox.record.booted ? nullptr : &base.memory;
  order->parent = sandbox.saved_memory;
  order->now_ms = parts_.clock.wall_ms();
  return order;
}

Task<Vault::Draft> Sandboxes::gather(std::shared_ptr<Vault::Order> order, std::shared_ptr<Capture> captured) {
  auto store = [&]() -> Task<Vault::Draft> {
    auto work = [this, order, captured] { return parts_.vault.gather(*order, *captured); };
    co_return co_await storing_.run(work);
  };
  auto storing = store();
  // What the guest was told up to now holds all that it knew then; more does no harm.
  auto asking = parts_.machines.gateway_state(order->record.id);
  auto [draft, names] = co_await (std::move(storing) && std::move(asking));
  if (draft && !names) co_return fail(std::move(names).error());
  if (draft) order->gateway_state = std::move(*names);
  co_return std::move(draft);
}

Task<Vault::Kept> Sandboxes::publish(std::shared_ptr<Vault::Order> order, Vault::Draft draft) {
  const auto whole = std::make_shared<Vault::Draft>(std::move(draft));
  auto work = [this, order, whole] { return parts_.vault.publish(*order, std::move(*whole)); };
  co_return co_await storing_.run(work);
}

// A node before this one came as far as the manifest and no further: it is all that a checkpoint is.
Task<bool> Sandboxes::was_kept(std::shared_ptr<Sandbox> sandbox, std::string operation, std::string checkpoint) {
  const std::string tenant = sandbox->record.tenant;
  auto look = [this, tenant, checkpoint] { return parts_.vault.open(tenant, checkpoint); };
  auto found = co_await parts_.disk.run(look);
  if (!found && found.error().code == "checkpoint_unknown") co_return false;
  if (!found) co_return fail(std::move(found).error());
  if (found->manifest.sandbox != sandbox->record.id) co_return fail(other_sandbox());
  SandboxRecord changed = sandbox->record;
  changed.checkpoint = checkpoint;
  changed.last_operation = operation;
  CO_TRY_VOID(co_await store(changed));
  sandbox->record = std::move(changed);
  co_return true;
}

// The guest takes longer than all else before the pause; what it is asked for harms nothing where no checkpoint comes of it.
Task<> Sandboxes::prepare_checkpoint(std::shared_ptr<Sandbox> sandbox, BasePtr base, Capture& captured, Spans& spans) {
  auto noting = note_processes(sandbox, spans);
  auto preparing = prepare_machine(sandbox, std::move(base), captured, spans);
  co_return co_await (std::move(noting) && std::move(preparing));
}

Task<> Sandboxes::prepare_machine(std::shared_ptr<Sandbox> sandbox, BasePtr base, Capture& captured, Spans& spans) {
  {
    const Spans::Step step(spans, "ask");
    auto room = check_room(sandbox->record, true);
    auto names = parts_.machines.gateway_state(sandbox->record.id);  // without the gateway nothing is begun
    auto [fits, known] = co_await (std::move(room) && std::move(names));
    CO_TRY_VOID(std::move(fits));
    CO_TRY_VOID(std::move(known));
  }
  auto adding = add_generation(sandbox, std::move(base), spans);
  auto preparing = parts_.machines.prepare_capture(sandbox->machine, memory_bytes(sandbox->record), spans);
  auto [added, prepared] = co_await (std::move(adding) && std::move(preparing));
  if (added && prepared) {
    captured = std::move(*prepared);
    co_return Result<>{};
  }
  if (!added) co_return added;
  co_await drop_generation(sandbox);
  co_return fail(std::move(prepared).error());
}

// So that a restart of node in between does not hide which processes there are; a guest whose last one is known is not asked. And what the
// guest has not written yet is in its memory alone: who wants one path of this checkpoint's disk, or a boot from it, would miss it.
asio::awaitable<void> Sandboxes::note_processes(std::shared_ptr<Sandbox> sandbox, Spans& spans) {
  if (sandbox->record.state != SandboxState::running) co_return;
  auto list = [&]() -> asio::awaitable<void> {
    const Spans::Step step(spans, "list");
    const std::uint64_t mark = sandbox->sessions.mark();
    auto listed = co_await ask_agent(sandbox->machine, sandbox->machine.agent->list(), kListLimit, "list its processes");
    if (listed) sandbox->sessions.reconcile(*listed, mark);
  };
  auto flushing = parts_.machines.flush(sandbox->machine, kCheckpointFlush, spans);
  if (sandbox->sessions.knows_highest()) co_return co_await std::move(flushing);
  auto listing = list();
  co_await (std::move(flushing) && std::move(listing));  // in this order: it takes the connection that there is
}

// The guest stands still from here on, when it ran.
Task<> Sandboxes::capture_and_switch(std::shared_ptr<Sandbox> sandbox, std::shared_ptr<Vault::Order> order,
                                     std::shared_ptr<Capture> captured, Spans& spans) {
  // What did not freeze is no checkpoint: forks of it would run users' processes before their kernels have random state of their own.
  if (sandbox->record.state == SandboxState::running) CO_TRY_VOID(co_await parts_.machines.freeze(sandbox->machine, spans, kInitLimit));
  CO_TRY_VOID(co_await parts_.machines.capture_devices(sandbox->machine, true, spans));
  // The one is read by node alone, the other done by the VMM alone.
  auto reading = parts_.machines.capture_pages(sandbox->machine, memory_bytes(sandbox->record), *captured, spans);
  auto change = [&]() -> Task<> {
    const Spans::Step step(spans, "switch");
    co_return co_await switch_generation(sandbox);
  };
  auto switching = change();
  auto [read, switched] = co_await (std::move(reading) && std::move(switching));
  CO_TRY_VOID(std::move(read));
  CO_TRY_VOID(std::move(switched));
  // Sandboxes made of this one tell its processes from their own by their numbers.
  order->record.processes = std::max(order->record.inherited, sandbox->sessions.highest());
  co_return Result<>{};
}

Task<Done> Sandboxes::restore(std::string id, std::string operation, std::string checkpoint) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  const auto sandbox = in.sandbox;
  const SandboxRecord record = sandbox->record;
  if (record.state == SandboxState::running && record.last_operation == operation) co_return Done{record, {}};
  SandboxRecord changed = record;
  CO_TRY(changed.state, next_state(record.state, SandboxEvent::restore));
  const Pools::Foreground foreground(parts_.pools);
  Spans spans(parts_.clock);
  const std::string tenant = record.tenant;
  auto open = [this, tenant, checkpoint] { return parts_.vault.open(tenant, checkpoint); };
  CO_TRY(Checkpoint opened, co_await parts_.disk.run(open));
  const auto from = std::make_shared<const Checkpoint>(std::move(opened));
  if (from->manifest.sandbox != id) co_return fail(other_sandbox());
  changed.checkpoint = checkpoint;
  changed.epoch = record.epoch + 1;
  changed.unfrozen = false;
  changed.last_operation = operation;
  if (!from->manifest.memory) co_return co_await restore_disk(sandbox, std::move(changed), from, spans);
  CO_TRY(const BasePtr base, co_await base_of(from->record));

  // What the sandbox was then, as far as its machine goes; what it is called and may do stays as it is now.
  const std::string vm = new_id(), generation = "disk-" + new_id();
  const auto folder = parts_.records.folder(id), path = folder / generation;
  changed.vm = vm;
  changed.size = from->record.size;
  changed.base_key = from->record.base_key;
  changed.base_content = from->record.base_content;
  changed.vmm_build = from->manifest.vmm_build;
  changed.state_key = from->record.state_key;
  changed.layers = from->record.layers;
  changed.disks = {generation};
  changed.booted = from->record.booted;
  changed.inherited = from->record.inherited;
  changed.saved.clear();
  changed.end_reason.clear();
  auto hold = [this, tenant, from] { return parts_.vault.hold(tenant, from->record.layers, &*from->manifest.memory); };
  CO_TRY(auto lease, co_await parts_.disk.run(hold));
  auto remove = [path]() -> Result<> { return remove_tree(path); };
  auto file = co_await new_generation(path, base);
  Result<Machine> machine = fail(ErrorKind::internal, "no_machine", "");
  if (file)
    machine = co_await machine_from(changed, folder, base, from, vm, spans);
  else
    machine = fail(std::move(file).error());
  if (!machine) {
    (void)co_await parts_.disk.run(remove);
    co_return fail(std::move(machine).error());
  }

  const std::filesystem::path nowhere;
  auto names = co_await gateway_state_of(tenant, from, nowhere);
  if (!names) {
    if (auto gone = co_await parts_.machines.destroy(std::move(*machine)); !gone)
      log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
    (void)co_await parts_.disk.run(remove);
    co_return fail(std::move(names).error());
  }
  sandbox->gateway_state = std::move(*names);
  auto memory = std::make_shared<const snapshot::MemoryState>(*from->manifest.memory);
  co_return co_await replace(sandbox, std::move(changed), std::move(*machine), true, std::move(lease), std::move(memory), spans);
}

Task<Done> Sandboxes::replace(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed, Machine machine, bool loaded,
                              std::unique_ptr<snapshot::Lease> held, std::shared_ptr<const snapshot::MemoryState> memory, Spans& spans) {
  const SandboxRecord record = sandbox->record;
  const std::string id = record.id, tenant = record.tenant, saved = record.saved, generation = changed.disks.back();
  const auto folder = parts_.records.folder(id), path = folder / generation;
  const Resting resting(*sandbox);
  if (record.state == SandboxState::running)
    if (const auto stood = co_await stand_still(parts_.machines, sandbox->machine, spans); !stood)
      log::warn("sandbox.pause_failed", {{"sandbox", id}, {"error", stood.error()}});
  auto done = co_await take_over(sandbox, std::move(changed), std::move(machine), loaded, spans);
  if (!done && sandbox->record.epoch == record.epoch) {
    auto remove = [path]() -> Result<> { return remove_tree(path); };
    (void)co_await parts_.disk.run(remove);
    if (record.state == SandboxState::running && !sandbox->vmm_gone)
      if (auto back = co_await go_on(sandbox, spans); !back)
        log::warn("sandbox.restore_undo_failed", {{"sandbox", id}, {"error", back.error()}});
    co_return done;
  }
  sandbox->sessions.clear();
  sandbox->saved_memory = std::move(memory);
  sandbox->lease = std::move(held);
  sandbox->interrupt_streams();
  auto forget = [this, tenant, saved, folder, generation]() -> Result<> {
    if (!saved.empty()) TRY_VOID(parts_.vault.forget(tenant, saved));
    return parts_.vault.tidy(folder, {generation});
  };
  if (auto tidied = co_await parts_.disk.run(forget); !tidied)
    log::warn("sandbox.files_left", {{"sandbox", id}, {"error", tidied.error()}});
  co_return done;
}

// A new sandbox's machine out of a checkpoint: its own empty generation on top of the frozen ones.
Task<Machine> Sandboxes::forked_machine(std::shared_ptr<Sandbox> sandbox, const CreateRequest& request, Spans& spans) {
  SandboxRecord& record = sandbox->record;
  const std::string tenant = record.tenant, checkpoint = request.checkpoint;
  Spans::Step reading(spans, "checkpoint");
  auto open = [this, tenant, checkpoint] { return parts_.vault.open(tenant, checkpoint); };
  CO_TRY(Checkpoint opened, co_await parts_.disk.run(open));
  const auto from = std::make_shared<const Checkpoint>(std::move(opened));
  if (from->record.unfrozen && from->manifest.memory) co_return fail(guest_not_frozen("wake the sandbox that it is of, and fork that"));
  record.lineage = from->manifest.lineage;  // from here on its authority is in use, whatever becomes of the checkpoint
  CO_TRY(const BasePtr base, co_await base_of(from->record));
  const bool boots = !from->manifest.memory;  // of a disk alone
  auto hold = [this, tenant, from, boots] {
    return parts_.vault.hold(tenant, from->record.layers, boots ? nullptr : &*from->manifest.memory);
  };
  CO_TRY(sandbox->lease, co_await parts_.disk.run(hold));
  reading.end();
  record.template_reference = from->record.template_reference;
  record.template_digest = from->record.template_digest;
  record.base_key = from->record.base_key;
  record.base_content = from->record.base_content;
  record.vmm_build = boots ? parts_.vmm_build : from->manifest.vmm_build;
  record.state_key = boots ? parts_.machines.state_key("") : from->record.state_key;
  record.size = from->record.size;
  record.layers = from->record.layers;
  record.disks = {"disk.qcow2"};
  record.booted = boots || from->record.booted;
  record.inherited = boots ? 0 : from->record.processes;
  record.snapshot_every_s = from->record.snapshot_every_s;
  record.snapshot_keep = from->record.snapshot_keep;
  record.mounts = from->record.mounts;  // its memory has them mounted
  record.checkpoint = record.origin = checkpoint;
  // Its own settings go before those of its parent.
  record.env.insert(from->record.env.begin(), from->record.env.end());
  if (!request.env.empty()) CO_TRY_VOID(check_variables(record.env));
  if (!boots) sandbox->saved_memory = std::make_shared<const snapshot::MemoryState>(*from->manifest.memory);

  const std::string vm = new_id();
  auto prepare = [this, vm] { return parts_.records.make_pool_folder(vm); };
  CO_TRY(const auto folder, co_await parts_.disk.run(prepare));
  const auto path = folder / "disk.qcow2";
  auto file = co_await new_generation(path, base, false);  // its publishing makes it durable
  if (file) {
    auto names = co_await gateway_state_of(tenant, from, folder);
    if (names)
      sandbox->gateway_state = std::move(*names);
    else
      file = fail(std::move(names).error());
  }
  Result<Machine> machine = fail(ErrorKind::internal, "no_machine", "");
  if (!file)
    machine = fail(std::move(file).error());
  else if (boots)
    machine = co_await booted_machine(record, folder, vm, spans);
  else
    machine = co_await machine_from(record, folder, base, from, vm, spans);
  if (machine) co_return machine;
  auto remove = [this, vm] { return parts_.records.remove_pool_folder(vm); };
  (void)co_await parts_.disk.run(remove);
  co_return machine;
}

bool Sandboxes::is_used(const std::string& tenant, const std::string& checkpoint) const {
  return std::any_of(table_.begin(), table_.end(),
                     [&](const auto& entry) { return entry.second->record.tenant == tenant && entry.second->record.saved == checkpoint; });
}

}  // namespace space::node
