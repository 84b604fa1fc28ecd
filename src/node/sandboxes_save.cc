// Suspend, stop, and the ways back. Each goes by the same rule: what is new is made beside what there is, the record is written,
// and only then what was before goes. So a kill -9 at any instant leaves the state before or the state after:
//
//   suspend, stop   disk written → VM stands still → state stored → record → VM goes
//                                                                            before the record: recovery lets the VM run again
//   wake            VM loaded, still → record → VM runs → saved state goes   before the record: recovery sweeps the VM
//   start           VM booted → record → identity                            the same; the disk is as after a power cut
#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "node/busy.h"
#include "node/sandboxes.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kStopFlushLimit = seconds(30);    // nothing of it comes back but its disk
constexpr milliseconds kSuspendFlushLimit = seconds(5);  // its memory is kept; a start instead of a wake should find its files all the same

}  // namespace

Task<std::vector<Fd>> Sandboxes::disk_files(SandboxRecord record, std::filesystem::path folder) {
  auto open = [this, record, folder]() -> Result<std::vector<Fd>> {
    TRY(std::vector<Fd> files, parts_.vault.layers(record.tenant, record.layers));
    for (const std::string& name : record.disks) {
      const bool top = &name == &record.disks.back();
      TRY(Fd file, open_file(folder / name, top ? O_RDWR : O_RDONLY));
      files.push_back(std::move(file));
    }
    return files;
  };
  co_return co_await parts_.disk.run(open);
}

Task<> Sandboxes::give_up_machine(std::shared_ptr<Sandbox> sandbox, bool in_order, Spans& spans) {
  const Spans::Step step(spans, "destroy");
  Machine machine = std::move(sandbox->machine);
  sandbox->machine = {};
  sandbox->vmm_gone = false;
  if (!machine) co_return Result<>{};
  *machine.on_end = nullptr;
  const std::string vm = machine.id;
  // In order: the images are closed clean, which spares the next VMM a repair.
  if (in_order)
    if (auto closed = co_await machine.vm->close(); !closed) log::warn("vm.close_failed", {{"vm", vm}, {"error", closed.error()}});
  // What cannot be destroyed now is tried again in the background.
  if (auto gone = co_await parts_.machines.destroy(std::move(machine)); !gone)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
  const auto folder = parts_.records.folder(sandbox->record.id);
  const auto disks = sandbox->record.disks;
  auto tidy = [this, folder, disks] { return parts_.vault.tidy(folder, disks); };
  if (auto tidied = co_await parts_.disk.run(tidy); !tidied)
    log::warn("sandbox.files_left", {{"sandbox", sandbox->record.id}, {"error", tidied.error()}});
  co_return Result<>{};
}

Task<Done> Sandboxes::suspend(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  if (record.state == SandboxState::suspended && record.last_operation == operation) co_return Done{record, {}};
  CO_TRY(const SandboxState next, next_state(record.state, SandboxEvent::suspend));
  const bool ran = record.state == SandboxState::running;
  Spans spans(parts_.clock);
  CO_TRY(const BasePtr base, co_await base_under(sandbox));
  const std::string tenant = record.tenant;
  CO_TRY_VOID(co_await check_room(record, false));
  CO_TRY_VOID(co_await parts_.machines.gateway_state(id));  // without the gateway nothing is begun
  co_await parts_.machines.flush(sandbox->machine, kSuspendFlushLimit, spans);
  CO_TRY(Capture prepared, co_await parts_.machines.prepare_capture(sandbox->machine, memory_bytes(record), spans));
  const auto captured = std::make_shared<Capture>(std::move(prepared));
  const Resting resting(*sandbox);
  SandboxRecord changed = record;
  changed.state = next;
  changed.saved = new_id();
  changed.last_operation = operation;

  if (ran) {
    const auto frozen = co_await parts_.machines.freeze(sandbox->machine, spans);
    changed.unfrozen = !frozen;
  }
  Result<> done = co_await parts_.machines.capture_devices(sandbox->machine, false, spans);
  if (done) done = co_await parts_.machines.capture_pages(sandbox->machine, memory_bytes(record), *captured, spans);
  Result<Vault::Kept> kept = fail(ErrorKind::internal, "not_kept", "");
  if (done) {
    const Spans::Step step(spans, "store");
    const auto order = order_of(*sandbox, *base, changed.saved);
    order->kind = snapshot::CheckpointKind::suspend;
    order->record.unfrozen = changed.unfrozen;
    auto draft = co_await gather(order, captured);
    if (draft)
      kept = co_await publish(order, std::move(*draft));
    else
      kept = fail(std::move(draft).error());
    if (!kept) done = fail(kept.error());
  }
  if (done) {
    const Spans::Step step(spans, "record");
    done = co_await store(changed);
  }
  if (!done) {
    const std::string saved = changed.saved;
    auto forget = [this, tenant, saved] { return parts_.vault.forget(tenant, saved); };
    (void)co_await parts_.disk.run(forget);
    if (ran && !sandbox->vmm_gone)
      if (auto back = co_await go_on(sandbox, spans); !back)
        log::warn("sandbox.suspend_undo_failed", {{"sandbox", id}, {"error", back.error()}});
    co_return fail(std::move(done).error());
  }
  record = std::move(changed);
  sandbox->saved_memory = kept->memory;
  sandbox->lease = std::move(kept->lease);
  sandbox->changed.notify_all();
  sandbox->interrupt_streams();
  (void)co_await give_up_machine(sandbox, true, spans);
  log::info("sandbox.suspended", {{"sandbox", id}, {"operation", operation}, {"bytes", static_cast<std::int64_t>(kept->own_bytes)}});
  co_return Done{record, spans.take()};
}

Task<Done> Sandboxes::stop(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  if (record.state == SandboxState::stopped && record.last_operation == operation) co_return Done{record, {}};
  CO_TRY(const SandboxState next, next_state(record.state, SandboxEvent::stop));
  Spans spans(parts_.clock);
  const bool ran = record.state == SandboxState::running;
  if (record.state != SandboxState::suspended) co_await parts_.machines.flush(sandbox->machine, kStopFlushLimit, spans);
  const Resting resting(*sandbox);
  SandboxRecord changed = record;
  changed.state = next;
  changed.saved.clear();
  changed.unfrozen = false;
  changed.last_operation = operation;
  Result<> done;
  if (ran)
    if (const auto stood = co_await stand_still(parts_.machines, sandbox->machine, spans); !stood) done = fail(stood.error());
  if (done) {
    const Spans::Step step(spans, "record");
    done = co_await store(changed);
  }
  if (!done) {
    if (ran && !sandbox->vmm_gone)
      if (auto back = co_await go_on(sandbox, spans); !back)
        log::warn("sandbox.stop_undo_failed", {{"sandbox", id}, {"error", back.error()}});
    co_return fail(std::move(done).error());
  }
  const std::string tenant = record.tenant, saved = record.saved;
  record = std::move(changed);
  sandbox->saved_memory = nullptr;
  sandbox->changed.notify_all();
  sandbox->interrupt_streams();
  (void)co_await give_up_machine(sandbox, true, spans);
  if (!saved.empty()) {
    auto forget = [this, tenant, saved] { return parts_.vault.forget(tenant, saved); };
    if (auto gone = co_await parts_.disk.run(forget); !gone) log::warn("sandbox.saved_left", {{"sandbox", id}, {"error", gone.error()}});
  }
  log::info("sandbox.stopped", {{"sandbox", id}, {"operation", operation}});
  co_return Done{record, spans.take()};
}

Task<Done> Sandboxes::wake(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  CO_TRY(Entered in, co_await enter(id));
  const SandboxRecord& record = in.sandbox->record;
  if (record.state == SandboxState::running && record.last_operation == operation) co_return Done{record, {}};
  if (record.state == SandboxState::paused) co_return co_await resume_paused(std::move(in), std::move(operation), SandboxEvent::wake);
  co_return co_await come_back(std::move(in), std::move(operation), SandboxEvent::wake);
}

Task<Done> Sandboxes::start(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  CO_TRY(Entered in, co_await enter(id));
  const SandboxRecord& record = in.sandbox->record;
  if (record.state == SandboxState::running && record.last_operation == operation) co_return Done{record, {}};
  co_return co_await come_back(std::move(in), std::move(operation), SandboxEvent::start);
}

Task<Done> Sandboxes::come_back(Entered in, std::string operation, SandboxEvent event) {
  const auto sandbox = in.sandbox;
  SandboxRecord changed = sandbox->record;
  CO_TRY(changed.state, next_state(changed.state, event));
  const Pools::Foreground foreground(parts_.pools);
  const Resting resting(*sandbox);
  const bool restores = event == SandboxEvent::wake && sandbox->record.state == SandboxState::suspended;
  Spans spans(parts_.clock);
  const std::string tenant = changed.tenant, saved = changed.saved;
  Machine machine;
  std::shared_ptr<const snapshot::MemoryState> memory;
  if (restores) {
    auto open = [this, tenant, saved] { return parts_.vault.open(tenant, saved); };
    CO_TRY(Checkpoint opened, co_await parts_.disk.run(open));
    auto from = std::make_shared<const Checkpoint>(std::move(opened));
    const std::filesystem::path nowhere;
    CO_TRY(sandbox->gateway_state, co_await gateway_state_of(tenant, from, nowhere));
    CO_TRY(BasePtr base, co_await base_of(sandbox->record));
    const std::string vm = new_id();
    auto folder = parts_.records.folder(sandbox->record.id);
    CO_TRY(machine, co_await machine_from(sandbox->record, std::move(folder), std::move(base), from, vm, spans));
    memory = std::make_shared<const snapshot::MemoryState>(*from->manifest.memory);
  } else {
    const std::string vm = new_id();
    auto folder = parts_.records.folder(sandbox->record.id);
    CO_TRY(machine, co_await booted_machine(sandbox->record, std::move(folder), vm, spans));
    changed.booted = true;
    changed.inherited = 0;
    changed.vmm_build = parts_.vmm_build;
    changed.state_key = parts_.machines.state_key("");
  }
  changed.vm = machine.id;
  changed.saved.clear();
  changed.unfrozen = false;
  changed.end_reason.clear();
  changed.last_operation = std::move(operation);
  auto done = co_await take_over(sandbox, std::move(changed), std::move(machine), restores, spans);
  if (!done) co_return done;
  sandbox->saved_memory = memory;
  if (!saved.empty()) {
    auto forget = [this, tenant, saved] { return parts_.vault.forget(tenant, saved); };
    if (auto gone = co_await parts_.disk.run(forget); !gone)
      log::warn("sandbox.saved_left", {{"sandbox", done->record.id}, {"error", gone.error()}});
  }
  co_return done;
}

Task<Done> Sandboxes::take_over(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed, Machine machine, bool loaded, Spans& spans) {
  const SandboxRecord before = sandbox->record;
  const std::string vm = machine.id;
  changed.loaded = loaded;
  {
    const Spans::Step step(spans, "record");
    auto stored = co_await store(changed);
    if (!stored) {
      if (auto gone = co_await parts_.machines.destroy(std::move(machine)); !gone)
        log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
      co_return fail(std::move(stored).error());
    }
  }
  sandbox->record = changed;
  const bool had_vm = static_cast<bool>(sandbox->machine);
  if (had_vm) (void)co_await give_up_machine(sandbox, false, spans);
  sandbox->vmm_gone = false;
  own(sandbox, std::move(machine));
  Result<> ran = co_await sandbox->machine.vm->resume();
  if (!ran && !had_vm && loaded) {
    // It has not run one instruction: the state before is what it still is.
    sandbox->record = before;
    if (auto back = co_await store(before); !back) log::error("sandbox.record_stale", {{"sandbox", before.id}, {"error", back.error()}});
    (void)co_await give_up_machine(sandbox, false, spans);
    co_return fail(std::move(ran).error());
  }
  Identity identity = identity_of(changed);
  identity.names = sandbox->gateway_state;
  if (ran) ran = co_await parts_.machines.activate(sandbox->machine, identity, spans);
  if (ran && loaded) {
    changed.loaded = false;
    told(sandbox);
  }
  sandbox->used = std::chrono::steady_clock::now();
  sandbox->changed.notify_all();
  if (!ran) co_return fail(std::move(ran).error());
  log::info("sandbox.running", {{"sandbox", changed.id}, {"operation", changed.last_operation}, {"vm", vm}});
  co_return Done{changed, spans.take()};
}

}  // namespace space::node
