// Frozen generations of a sandbox's disk, merged beside its life: the copying is done by a process in a jail of its own on files that
// nobody writes, and holds up nobody. Then, in the sandbox's turn, its VM is given the merged image in their place, and the record
// after it. Both sets hold the same, so a crash between any two steps leaves a disk that is right:
//
//   merged, not named by the record   garbage, collected at the next start; the VM stands on what it has open
//   the VM on it, the record not      the record's generations hold the same, and stay in the store while it names them
//
// What was frozen before stays as long as a checkpoint or the record names it.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "node/busy.h"
#include "node/sandboxes.h"
#include "snapshot/generations.h"

namespace space::node {
namespace {

Error replaced_meanwhile() {
  return {ErrorKind::conflict, "disk_changed", "the sandbox went to another disk while generations of its old one were merged",
          "nothing is to be done"};
}

}  // namespace

// Opened and made ready on the pool.
struct Sandboxes::MergePlan {
  std::vector<snapshot::BlobRef> chosen;
  std::unique_ptr<snapshot::Lease> lease;  // on them, whatever becomes of the sandbox meanwhile, and on what comes of them
  vmm::DiskMerge order;
  Fd into;
};

Task<std::shared_ptr<Sandboxes::MergePlan>> Sandboxes::plan_merge(SandboxRecord record, BasePtr base) {
  auto prepare = [this, record, base]() -> Result<std::shared_ptr<MergePlan>> {
    auto plan = std::make_shared<MergePlan>();
    const auto choice = snapshot::choose_merge(record.layers);
    if (!choice) return plan;
    const auto first = record.layers.begin() + static_cast<std::ptrdiff_t>(choice->first);
    plan->chosen.assign(first, first + static_cast<std::ptrdiff_t>(choice->count));
    TRY(plan->lease, parts_.vault.hold(record.tenant, plan->chosen, nullptr));
    TRY(plan->order.generations, parts_.vault.layers(record.tenant, plan->chosen));
    for (Fd* image : {&plan->into, &plan->order.scratch}) {
      TRY(*image, open_file(parts_.records.spool(), O_RDWR | O_TMPFILE));
      TRY_VOID(copy_file_sparse(base->empty_overlay, *image));
    }
    TRY(plan->order.into, plan->into.duplicate());
    plan->order.id = new_id();
    plan->order.disk_mib = record.size.disk_mib;
    return plan;
  };
  CO_TRY(const auto plan, co_await storing_.run(prepare));
  CO_TRY_VOID(co_await check_layers(record.tenant, plan->chosen));  // what is damaged must not come to lie under a new, right name
  co_return plan;
}

Task<> Sandboxes::merge_disk(std::shared_ptr<Sandbox> sandbox) {
  const Busy busy(busy_, idle_);
  const SandboxRecord before = sandbox->record;
  CO_TRY(const BasePtr base, co_await base_of(before));
  CO_TRY(const auto plan, co_await plan_merge(before, base));
  if (plan->chosen.empty()) co_return Result<>{};
  const std::string process = plan->order.id;
  CO_TRY_VOID(co_await parts_.machines.merge_generations(std::move(plan->order)));
  auto keep = [this, plan] { return parts_.vault.keep_generation(*plan->lease, plan->into); };
  CO_TRY(const snapshot::BlobRef merged, co_await storing_.run(keep));

  const auto turn = co_await sandbox->strand.enter();
  if (sandbox->gone || sandbox->removing) co_return fail(replaced_meanwhile());
  SandboxRecord changed = sandbox->record;
  const auto found = std::search(changed.layers.begin(), changed.layers.end(), plan->chosen.begin(), plan->chosen.end());
  if (found == changed.layers.end()) co_return fail(replaced_meanwhile());
  *found = merged;
  changed.layers.erase(found + 1, found + static_cast<std::ptrdiff_t>(plan->chosen.size()));
  const auto memory = sandbox->saved_memory;
  auto hold = [this, changed, memory] { return parts_.vault.hold(changed.tenant, changed.layers, memory.get()); };
  CO_TRY(auto lease, co_await parts_.disk.run(hold));
  if (changed.disks.size() > 1 && sandbox->machine && !sandbox->switched)
    co_return fail(replaced_meanwhile());  // the next checkpoint sees to it first
  if (sandbox->machine && !sandbox->vmm_gone) {
    auto folder = parts_.records.folder(changed.id);
    CO_TRY(std::vector<Fd> files, co_await disk_files(changed, std::move(folder)));
    files.pop_back();  // the top is open there, and written
    const auto vm = sandbox->machine.vm;
    CO_TRY_VOID(co_await vm->replace_generations(base->disk.size(), std::move(files)));
  }
  CO_TRY_VOID(co_await store(changed));
  sandbox->record = std::move(changed);
  sandbox->lease = std::move(lease);
  parts_.vault.garbage_left();
  const auto own = parts_.records.folder(before.id);
  const auto disks = sandbox->record.disks;
  auto tidy = [this, own, disks] { return parts_.vault.tidy_thawed(own, disks); };
  if (auto tidied = co_await parts_.disk.run(tidy); !tidied)
    log::warn("sandbox.files_left", {{"sandbox", before.id}, {"error", tidied.error()}});
  log::info("sandbox.disk_merged", {{"sandbox", before.id},
                                    {"process", process},
                                    {"generations", plan->chosen.size()},
                                    {"bytes", static_cast<std::int64_t>(merged.bytes)},
                                    {"left", sandbox->record.layers.size()}});
  co_return Result<>{};
}

// One at a time a sandbox. Its end is told with `changed`.
void Sandboxes::merge_soon(const std::shared_ptr<Sandbox>& sandbox) {
  if (std::exchange(sandbox->merging, true)) return;
  spawn(executor_, [](Sandboxes& self, std::shared_ptr<Sandbox> one) -> asio::awaitable<void> {
    auto done = co_await self.merge_disk(one);
    one->merge_error.reset();
    if (!done && done.error().code != "disk_changed") {
      log::warn("sandbox.disk_not_merged", {{"sandbox", one->record.id}, {"error", done.error()}});
      one->merge_error = done.error();
    }
    one->merging = false;
    one->changed.notify_all();
  }(*this, sandbox));
}

// What a checkpoint that failed after its switch has left: generations that nothing is written to any more, not yet in the store. Where
// it is not known whether the VM has switched (a restart in between), one more switch makes it certain.
Task<> Sandboxes::keep_unfinished(std::shared_ptr<Sandbox> sandbox) {
  if (sandbox->record.disks.size() <= 1) co_return Result<>{};
  if (sandbox->machine && !sandbox->switched) {
    Spans unused(parts_.clock);
    CO_TRY(const BasePtr base, co_await base_of(sandbox->record));
    CO_TRY_VOID(co_await add_generation(sandbox, base, unused));
    if (auto certain = co_await switch_generation(sandbox); !certain) {
      co_await drop_generation(sandbox);
      co_return fail(std::move(certain).error());
    }
  }
  SandboxRecord changed = sandbox->record;
  auto order = std::make_shared<Vault::Order>();
  order->record = changed;
  const auto folder = parts_.records.folder(changed.id);
  for (std::size_t i = 0; i + 1 < changed.disks.size(); ++i) order->disks.push_back(folder / changed.disks[i]);
  auto keep = [this, order] { return parts_.vault.keep_generations(*order); };
  CO_TRY(Vault::Kept kept, co_await storing_.run(keep));
  changed.layers = kept.layers;
  changed.disks = {changed.disks.back()};
  co_return co_await stand_on(sandbox, std::move(changed));
}

Task<> Sandboxes::stand_on(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed) {
  const auto memory = sandbox->saved_memory;
  auto hold = [this, &changed, memory] { return parts_.vault.hold(changed.tenant, changed.layers, memory.get()); };
  CO_TRY(auto lease, co_await parts_.disk.run(hold));
  CO_TRY_VOID(co_await store(changed));
  sandbox->record = std::move(changed);
  sandbox->lease = std::move(lease);
  co_return Result<>{};
}

Task<> Sandboxes::check_room(const SandboxRecord& record, bool with_disk) {
  const std::string tenant = record.tenant;
  const auto folder = parts_.records.folder(record.id);
  const std::vector<std::string> disks = with_disk ? record.disks : std::vector<std::string>{};
  auto look = [this, tenant, folder, disks] {
    std::uint64_t bytes = 0;
    for (const std::string& name : disks) {
      struct stat st {};
      if (::stat((folder / name).c_str(), &st) == 0) bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
    }
    return parts_.vault.room(tenant, bytes);
  };
  co_return co_await parts_.disk.run(look);
}

Task<Sandboxes::Entered> Sandboxes::enter_with_room(std::string id) {
  for (int attempt = 0;; ++attempt) {
    CO_TRY(Entered in, co_await enter(id));
    const auto sandbox = in.sandbox;
    CO_TRY_VOID(co_await keep_unfinished(sandbox));
    if (sandbox->record.layers.size() <= snapshot::kFewGenerations) co_return in;
    CO_TRY(const BasePtr base, co_await base_of(sandbox->record));
    if (sandbox->record.layers.size() < snapshot::most_generations(base->disk.size())) co_return in;
    if (attempt > 0 && sandbox->merge_error) co_return fail(*sandbox->merge_error);
    in.turn = Strand::Turn();
    merge_soon(sandbox);
    while (sandbox->merging) co_await sandbox->changed.wait_for(std::chrono::seconds(1));
  }
}

}  // namespace space::node
