#include "node/sandboxes.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "node/busy.h"

namespace space::node {
namespace {

using std::chrono::hours;

constexpr std::size_t kDeletedRemembered = 10'000;
constexpr int kMostPooledTries = 3;
constexpr std::chrono::seconds kTellLater{2};

Error overtaken() {
  return {ErrorKind::conflict, "sandbox_deleted", "the sandbox was deleted before its create had finished", "create another one"};
}

// 32 hex digits, as machine-id(5) wants them.
std::string new_machine_id() {
  std::array<std::byte, 16> bytes;
  random_bytes(bytes);
  return hex_encode(bytes);
}

}  // namespace

Identity Sandboxes::identity_of(const SandboxRecord& record) {
  return {record.id, record.hostname, record.machine_id, record.env, record.epoch, record.tenant, record.lineage, record.loaded};
}

Task<> Sandboxes::go_on(std::shared_ptr<Sandbox> sandbox, Spans& spans) {
  const Identity identity = identity_of(sandbox->record);
  auto done = co_await parts_.machines.activate(sandbox->machine, identity, spans);
  if (done && sandbox->record.loaded) told(sandbox);
  co_return done;
}

void Sandboxes::told(const std::shared_ptr<Sandbox>& sandbox) {
  sandbox->record.loaded = false;
  spawn(executor_, store_later(sandbox));
}

// Meanwhile it keeps nothing alive: a sandbox that is there afterwards stands in the table, and so do all these.
asio::awaitable<void> Sandboxes::store_later(std::weak_ptr<Sandbox> weak) {
  co_await sleep_for(kTellLater);
  const auto sandbox = weak.lock();
  if (!sandbox) co_return;
  const Busy busy(busy_, idle_);
  const auto turn = co_await sandbox->strand.enter();
  if (sandbox->gone || sandbox->removing) co_return;
  if (auto stored = co_await store(sandbox->record); !stored)
    log::error("sandbox.record_stale", {{"sandbox", sandbox->record.id}, {"error", stored.error()}});
}

Sandboxes::Sandboxes(asio::any_io_executor executor, Parts parts, std::size_t most)
    : executor_(executor), parts_(parts), most_(most), idle_(executor) {}

std::shared_ptr<Sandbox> Sandboxes::find(std::string_view id) const {
  const auto found = table_.find(id);
  return found == table_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Sandbox>> Sandboxes::all() const {
  std::vector<std::shared_ptr<Sandbox>> sandboxes;
  sandboxes.reserve(table_.size());
  for (const auto& [id, sandbox] : table_) sandboxes.push_back(sandbox);
  return sandboxes;
}

std::vector<SandboxRecord> Sandboxes::list() const {
  std::vector<SandboxRecord> records;
  records.reserve(table_.size());
  for (const auto& [id, sandbox] : table_) records.push_back(sandbox->record);
  return records;
}

std::shared_ptr<Sandbox> Sandboxes::restore(SandboxRecord record, Machine machine) {
  auto sandbox = std::make_shared<Sandbox>(executor_);
  sandbox->record = std::move(record);
  if (machine) own(sandbox, std::move(machine));
  table_[sandbox->record.id] = sandbox;
  return sandbox;
}

asio::awaitable<void> Sandboxes::settle() {
  while (busy_ > 0) co_await idle_.wait_for(hours(1));
}

Task<Done> Sandboxes::create(CreateRequest request) {
  const Busy busy(busy_, idle_);
  if (auto known = find(request.id)) {
    if (known->record.create_operation != request.operation || known->record.tenant != request.tenant)
      co_return fail(ErrorKind::conflict, "sandbox_exists", "a sandbox with this id exists", "let the id be chosen anew");
    const auto turn = co_await known->strand.enter();
    if (known->failure) co_return fail(*known->failure);
    if (known->gone) co_return fail(overtaken());
    co_return Done{known->record, known->record.create_spans};
  }
  if (deleted_.contains(request.id)) co_return fail(overtaken());
  if (table_.size() >= most_)
    co_return fail(ErrorKind::resource_exhausted, "node_full", fmt::format("this machine holds its {} sandboxes", most_),
                   "delete some, or try again later");

  const Pools::Foreground foreground(parts_.pools);
  auto sandbox = std::make_shared<Sandbox>(executor_);
  SandboxRecord& record = sandbox->record;
  record.id = request.id;
  record.tenant = request.tenant;
  record.template_reference = request.template_reference;
  record.env = request.env;
  record.kept = request.kept;
  record.hostname = request.hostname.empty() ? request.id.substr(0, 12) : request.hostname;
  record.machine_id = new_machine_id();
  record.create_operation = record.last_operation = request.operation;
  record.created_ms = parts_.clock.wall_ms();
  table_[record.id] = sandbox;

  const auto turn = co_await sandbox->strand.enter();
  Spans spans(parts_.clock);
  auto done = co_await make(sandbox, std::move(request), spans);
  if (!done) {
    sandbox->failure = sandbox->removing ? overtaken() : done.error();
    log::warn("sandbox.create_failed", {{"sandbox", record.id}, {"operation", record.create_operation}, {"error", done.error()}});
    co_await undo(sandbox);
    co_return fail(*sandbox->failure);
  }
  log::info("sandbox.created", {{"sandbox", record.id}, {"operation", record.create_operation}, {"vm", record.vm}});
  co_return done;
}

Task<Done> Sandboxes::make(std::shared_ptr<Sandbox> sandbox, CreateRequest request, Spans& spans) {
  SandboxRecord& record = sandbox->record;
  const bool forked = !request.checkpoint.empty();
  std::shared_ptr<const tmpl::Base> base;
  if (!forked) {
    CO_TRY(base, co_await base_for(sandbox, request, spans));
    record.template_digest = base->release.digest;
    record.base_key = base->key;
    record.base_content = base->content;
    record.vmm_build = parts_.vmm_build;
    record.state_key = parts_.machines.state_key("");
    record.size = base->size;
  }
  Pools::Slot slot;  // until the machine answers
  for (int attempt = forked ? kMostPooledTries + 1 : 1;; ++attempt) {
    const bool pooled = attempt <= kMostPooledTries;
    Machine machine;
    if (forked) {
      CO_TRY(machine, co_await forked_machine(sandbox, request, spans));
    } else {
      CO_TRY(machine, co_await paused_machine(sandbox, base, pooled, slot, spans));
    }
    record.vm = machine.id;
    own(sandbox, std::move(machine));
    auto started = co_await start(sandbox, forked, spans);
    if (sandbox->removing) co_return fail(overtaken());
    if (started) break;
    // A pooled machine may have died or gone stale while it waited; one made now tells whether something is really wrong.
    if (!pooled || !sandbox->vmm_gone) co_return fail(std::move(started).error());
    log::warn("sandbox.machine_replaced", {{"sandbox", record.id}, {"vm", record.vm}, {"error", started.error()}});
    CO_TRY_VOID(co_await parts_.disk.run([&] { return parts_.records.discard(record.id); }));
    Machine dead = std::move(sandbox->machine);
    sandbox->machine = {};
    CO_TRY_VOID(co_await parts_.machines.destroy(std::move(dead)));
    CO_TRY_VOID(co_await parts_.disk.run([&] { return parts_.records.purge(record.id); }));
    sandbox->vmm_gone = false;
  }
  if (sandbox->vmm_gone) co_return fail(ErrorKind::unavailable, "vm_ended", "the virtual machine ended while it started", "try again");
  CO_TRY(record.state, next_state(record.state, SandboxEvent::created));
  record.create_spans = spans.list();
  sandbox->changed.notify_all();
  co_return Done{record, spans.list()};
}

// Making a base can take many seconds. A delete does not wait for that: the base is finished for others all the same.
Task<std::shared_ptr<const tmpl::Base>> Sandboxes::base_for(std::shared_ptr<Sandbox> sandbox, CreateRequest request, Spans& spans) {
  Spans::Step resolving(spans, "template");
  CO_TRY(const tmpl::Release release, co_await parts_.bases.resolve(request.template_reference));
  resolving.end();
  sandbox->record.template_digest = release.digest;  // from now on nobody removes it
  const Spans::Step step(spans, "base");
  using Answer = std::optional<Result<std::shared_ptr<const tmpl::Base>>>;
  auto answer = std::make_shared<Answer>();
  spawn(executor_,
        [](BaseSource& bases, tmpl::Release wanted, WantedSize size, std::shared_ptr<Answer> out,
           std::shared_ptr<Sandbox> waiting) -> asio::awaitable<void> {
          *out = co_await bases.base(wanted, size);
          waiting->changed.notify_all();
        }(parts_.bases, release, request.size, answer, sandbox));
  while (!*answer && !sandbox->removing) co_await sandbox->changed.wait_for(hours(1));
  if (!*answer) co_return fail(overtaken());
  co_return std::move(**answer);
}

Task<Machine> Sandboxes::paused_machine(std::shared_ptr<Sandbox> sandbox, std::shared_ptr<const tmpl::Base> base, bool pooled,
                                        Pools::Slot& slot, Spans& spans) {
  Machine machine;
  if (pooled) {
    const Spans::Step step(spans, "claim");
    auto taken = co_await parts_.pools.take(base);
    slot = std::move(taken.slot);
    if (taken.ready) co_return std::move(taken.machine);
    machine = std::move(taken.machine);
  }
  if (machine) {
    spawn(executor_, hurry(machine.vm));
  } else {
    CO_TRY(machine, co_await parts_.machines.spawn(base, spans, false));
  }
  Result<> loaded;
  if (sandbox->removing) {
    loaded = fail(overtaken());
  } else {
    loaded = co_await parts_.machines.load(machine, spans);
  }
  if (loaded) co_return machine;
  const std::string vm = machine.id;
  if (auto destroyed = co_await parts_.machines.destroy(std::move(machine)); !destroyed)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", destroyed.error()}});
  co_return fail(std::move(loaded).error());
}

// The guest wakes up while the record is written: neither needs the other, and recovery repeats the guest's part (recovery.h).
Task<> Sandboxes::start(std::shared_ptr<Sandbox> sandbox, bool loaded, Spans& spans) {
  using namespace asio::experimental::awaitable_operators;
  SandboxRecord published = sandbox->record;
  CO_TRY(published.state, next_state(published.state, SandboxEvent::created));
  published.create_spans = spans.list();
  published.loaded = loaded;
  Identity identity = identity_of(published);
  identity.names = sandbox->gateway_state;
  auto write = [](Parts& parts, const SandboxRecord& record, Spans& steps) -> Task<> {
    const Spans::Step step(steps, "record");
    co_return co_await parts.disk.run([&parts, &record] { return parts.records.publish(record); });
  };
  auto [written, activated] = co_await (write(parts_, published, spans) && parts_.machines.activate(sandbox->machine, identity, spans));
  if (!activated) co_return fail(std::move(activated).error());
  if (written && loaded) told(sandbox);
  co_return std::move(written);
}

void Sandboxes::own(const std::shared_ptr<Sandbox>& sandbox, Machine machine) {
  *machine.on_end = [this, vm = machine.id, weak = std::weak_ptr(sandbox)] {
    auto self = weak.lock();
    if (!self) return;
    self->vmm_gone = true;
    self->changed.notify_all();
    self->interrupt_streams();
    spawn(executor_, on_vmm_gone(self, vm));
  };
  sandbox->machine = std::move(machine);
}

// Takes away what a create had made.
asio::awaitable<void> Sandboxes::undo(std::shared_ptr<Sandbox> sandbox) {
  sandbox->record.state = SandboxState::deleting;
  Spans unused(parts_.clock);
  // A machine that cannot be destroyed now is tried again in the background (Machines::destroy).
  if (auto gone = co_await tear_down(sandbox, unused); !gone)
    log::error("sandbox.undo_failed", {{"sandbox", sandbox->record.id}, {"error", gone.error()}});
  forget(sandbox);
}

Task<> Sandboxes::tear_down(std::shared_ptr<Sandbox> sandbox, Spans& spans) {
  const std::string id = sandbox->record.id;
  {
    const Spans::Step step(spans, "discard");
    CO_TRY_VOID(co_await parts_.disk.run([&] { return parts_.records.discard(id); }));
  }
  if (sandbox->machine) {
    const Spans::Step step(spans, "destroy");
    const Machine machine = sandbox->machine;
    CO_TRY_VOID(co_await parts_.machines.destroy(machine));
    sandbox->machine = {};
  }
  const Spans::Step step(spans, "purge");
  const SandboxRecord record = sandbox->record;
  auto purge = [this, record]() -> Result<> {
    if (!record.saved.empty()) TRY_VOID(parts_.vault.forget(record.tenant, record.saved));
    TRY_VOID(parts_.vault.tidy(parts_.records.trash_folder(record.id), {}));
    return parts_.records.purge(record.id);
  };
  CO_TRY_VOID(co_await parts_.disk.run(purge));
  sandbox->lease.reset();
  co_return Result<>{};
}

Task<std::vector<Span>> Sandboxes::remove(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  auto sandbox = find(id);
  if (!sandbox) {
    remember_deleted(id);
    co_return std::vector<Span>{};
  }
  sandbox->removing = true;
  sandbox->changed.notify_all();
  sandbox->interrupt_streams();
  Spans spans(parts_.clock);
  const auto turn = co_await sandbox->strand.enter();
  if (!sandbox->gone) {
    CO_TRY(sandbox->record.state, next_state(sandbox->record.state, SandboxEvent::remove));
    sandbox->record.last_operation = operation;
    CO_TRY_VOID(co_await tear_down(sandbox, spans));
    forget(sandbox);
    log::info("sandbox.deleted", {{"sandbox", id}, {"operation", operation}});
  }
  remember_deleted(id);
  co_return spans.take();
}

Task<Sandboxes::Entered> Sandboxes::enter(std::string id) {
  Entered in;
  in.sandbox = find(id);
  if (!in.sandbox) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox");
  in.turn = co_await in.sandbox->strand.enter();
  if (in.sandbox->gone || in.sandbox->removing) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox");
  co_return in;
}

Task<Done> Sandboxes::pause(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Entered in, co_await enter(id));
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  if (record.state == SandboxState::paused && record.last_operation == operation) co_return Done{record, {}};
  CO_TRY(const SandboxState next, next_state(record.state, SandboxEvent::pause));
  Spans spans(parts_.clock);
  SandboxRecord changed = record;
  changed.state = next;
  changed.last_operation = operation;
  const auto stood = co_await stand_still(parts_.machines, sandbox->machine, spans);
  Result<> done;
  if (!stood) done = fail(stood.error());
  if (done) {
    changed.unfrozen = !*stood;
    const Spans::Step step(spans, "record");
    done = co_await store(changed);
  }
  if (!done) {
    // Old state or new state, nothing between: the guest runs again and thaws.
    if (auto back = co_await go_on(sandbox, spans); !back)
      log::warn("sandbox.pause_undo_failed", {{"sandbox", id}, {"error", back.error()}});
    co_return fail(std::move(done).error());
  }
  record = std::move(changed);
  sandbox->changed.notify_all();
  sandbox->interrupt_streams();
  co_return Done{record, spans.take()};
}

Task<Done> Sandboxes::resume(std::string id, std::string operation) {
  const Busy busy(busy_, idle_);
  CO_TRY(Entered in, co_await enter(id));
  if (in.sandbox->record.state == SandboxState::running && in.sandbox->record.last_operation == operation)
    co_return Done{in.sandbox->record, {}};
  co_return co_await resume_paused(std::move(in), std::move(operation), SandboxEvent::resume);
}

Task<Done> Sandboxes::resume_paused(Entered in, std::string operation, SandboxEvent event) {
  const auto sandbox = in.sandbox;
  SandboxRecord& record = sandbox->record;
  CO_TRY(const SandboxState next, next_state(record.state, event));
  const Pools::Foreground foreground(parts_.pools);
  Spans spans(parts_.clock);
  SandboxRecord changed = record;
  changed.state = next;
  changed.unfrozen = false;
  changed.last_operation = operation;
  {
    const Spans::Step step(spans, "record");
    CO_TRY_VOID(co_await store(changed));
  }
  Identity identity = identity_of(changed);
  identity.names = sandbox->gateway_state;
  auto done = co_await parts_.machines.activate(sandbox->machine, identity, spans);
  // vCPUs that run make it running, whatever its agent says: that is the truth, and a delete or a pause is still possible.
  if (!done && sandbox->machine.vm->state() != vmm::VmState::running) {
    if (auto back = co_await store(record); !back) log::error("sandbox.record_stale", {{"sandbox", record.id}, {"error", back.error()}});
    co_return fail(std::move(done).error());
  }
  record = std::move(changed);
  if (done && record.loaded) told(sandbox);
  sandbox->used = std::chrono::steady_clock::now();
  sandbox->changed.notify_all();
  if (!done) co_return fail(std::move(done).error());
  co_return Done{record, spans.take()};
}

// The end that nobody asked for. Record and disk stay for the delete; what ran is taken away.
asio::awaitable<void> Sandboxes::on_vmm_gone(std::shared_ptr<Sandbox> sandbox, std::string vm) {
  const Busy busy(busy_, idle_);
  const auto turn = co_await sandbox->strand.enter();
  if (sandbox->gone || sandbox->removing || sandbox->machine.id != vm) co_return;
  const auto next = next_state(sandbox->record.state, SandboxEvent::vmm_gone);
  if (!next) co_return;  // a create or delete is at work and sees to it
  const std::string id = sandbox->record.id;
  const std::string last_words = co_await sandbox->machine.vm->console_tail();
  log::warn("sandbox.ended", {{"sandbox", id}, {"vm", sandbox->record.vm}, {"console", last_words}});
  sandbox->record.state = *next;
  sandbox->record.end_reason = "vmm_exited";
  sandbox->changed.notify_all();
  sandbox->interrupt_streams();
  if (auto stored = co_await store(sandbox->record); !stored)
    log::error("sandbox.record_stale", {{"sandbox", id}, {"error", stored.error()}});
  if (auto gone = co_await parts_.machines.destroy(sandbox->machine); gone) {
    sandbox->machine = {};
  } else {
    log::error("vm.destroy_failed", {{"sandbox", id}, {"error", gone.error()}});  // the delete tries again
  }
  parts_.events.publish("sandbox_ended", id, sandbox->record.end_reason);
}

Task<> Sandboxes::store(const SandboxRecord& record) {
  co_return co_await parts_.disk.run([&] { return parts_.records.update(record); });
}

void Sandboxes::forget(const std::shared_ptr<Sandbox>& sandbox) {
  ++forgotten_;
  sandbox->gone = true;
  sandbox->record.state = SandboxState::deleted;
  sandbox->changed.notify_all();
  sandbox->interrupt_streams();
  const auto found = table_.find(sandbox->record.id);
  if (found != table_.end() && found->second == sandbox) table_.erase(found);
}

void Sandboxes::remember_deleted(const std::string& id) {
  if (!deleted_.insert(id).second) return;
  deleted_order_.push_back(id);
  if (deleted_order_.size() <= kDeletedRemembered) return;
  deleted_.erase(deleted_order_.front());
  deleted_order_.pop_front();
}

}  // namespace space::node
