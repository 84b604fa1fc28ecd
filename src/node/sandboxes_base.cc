// The machines that a sandbox gets of its own base and files: loaded with a saved state, or booted from its disk.
//
// A disk stands on the overlay of the base that the sandbox was made from, a state on that base's memory and on the VMM that wrote
// it. So both ask for *that* base, by key and content, however many kernels, agents and VMMs this machine has seen since. A boot
// takes from it the disk alone; kernel and agent are those of today.
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fcntl.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "node/sandboxes.h"

namespace space::node {
namespace {

tl::unexpected<Error> unusable(std::string_view why) {
  return fail(ErrorKind::conflict, "saved_state_unusable", fmt::format("the machine that wrote this state is not here any more: {}", why),
              "start the sandbox from its disk; what was in its memory is given up");
}

}  // namespace

Task<Sandboxes::BasePtr> Sandboxes::base_of(const SandboxRecord& record) {
  const std::string digest = record.template_digest;
  const KeptBase wanted{record.base_key, record.base_content, record.size};
  CO_TRY(const tmpl::Release release, co_await parts_.bases.resolve(digest));
  co_return co_await parts_.bases.kept(release, wanted);
}

Task<Sandboxes::BasePtr> Sandboxes::base_under(std::shared_ptr<Sandbox> sandbox) {
  if (sandbox->machine.base) co_return sandbox->machine.base;
  co_return co_await base_of(sandbox->record);
}

Task<> Sandboxes::check_layers(std::string tenant, std::vector<snapshot::BlobRef> layers) {
  for (const snapshot::BlobRef& layer : layers) {
    const std::vector<snapshot::BlobRef> one{layer};
    auto read = [this, &tenant, &one] { return parts_.vault.check_layers(tenant, one); };
    CO_TRY_VOID(co_await checking_.run(read));
  }
  co_return Result<>{};
}

Task<Machine> Sandboxes::assemble(Assembly assembly, SandboxRecord record, Spans& spans) {
  using namespace asio::experimental::awaitable_operators;
  const std::string vm = assembly.vm;
  auto check = [this, record, &spans]() -> Task<> {
    const Spans::Step step(spans, "layers");
    co_return co_await check_layers(record.tenant, record.layers);
  };
  auto spawning = parts_.machines.assemble(std::move(assembly), spans);
  auto checking = check();
  auto [machine, sound] = co_await (std::move(spawning) && std::move(checking));
  if (sound || !machine) co_return std::move(machine);
  log::error("sandbox.layers_damaged", {{"sandbox", record.id}, {"vm", vm}, {"error", sound.error()}});
  if (auto gone = co_await parts_.machines.destroy(std::move(*machine)); !gone)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
  co_return fail(std::move(sound).error());
}

Task<Machine> Sandboxes::machine_from(SandboxRecord record, std::filesystem::path folder, BasePtr base,
                                      std::shared_ptr<const Checkpoint> from, std::string vm, Spans& spans) {
  const std::string build = from->manifest.vmm_build;
  if (from->manifest.base_key != base->key) co_return unusable("its kernel, agent or template was replaced");
  // What it was written under: noted, or else that of its base, which the same machine had loaded.
  const std::string& written_under = from->record.state_key.empty() ? base->state_key : from->record.state_key;
  if (parts_.machines.state_key(build) != written_under)
    co_return unusable("this version starts VMs in another way, or this host has another processor");
  Assembly parts;
  parts.vm = vm;
  parts.base = base;
  parts.size = record.size;
  if (build != parts_.vmm_build) parts.vmm_build = build;
  parts.memory_of_base = !from->record.booted;
  CO_TRY(parts.disks, co_await disk_files(record, std::move(folder)));
  const std::string tenant = record.tenant;
  auto read = [this, tenant, from] { return parts_.vault.saved(tenant, from->manifest); };
  CO_TRY(SavedState saved, co_await parts_.disk.run(read));
  auto assembled = co_await assemble(std::move(parts), record, spans);
  if (!assembled && assembled.error().code == "vmm_build_unknown")
    co_return unusable(fmt::format("its VMM build {} was removed", build.substr(0, 12)));
  if (!assembled) co_return assembled;
  Machine machine = std::move(*assembled);
  auto loaded = co_await parts_.machines.load_saved(machine, memory_bytes(record), std::move(saved), spans);
  if (loaded) co_return machine;
  if (auto gone = co_await parts_.machines.destroy(std::move(machine)); !gone)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
  co_return fail(std::move(loaded).error());
}

Task<Machine> Sandboxes::booted_machine(SandboxRecord record, std::filesystem::path folder, std::string vm, Spans& spans) {
  Assembly parts;
  parts.vm = vm;
  CO_TRY(parts.base, co_await base_of(record));
  parts.size = record.size;
  parts.memory_of_base = false;
  parts.boots = true;
  CO_TRY(parts.disks, co_await disk_files(record, std::move(folder)));
  CO_TRY(Machine machine, co_await assemble(std::move(parts), record, spans));
  auto booted = co_await parts_.machines.boot(machine, spans);
  if (booted) co_return machine;
  const std::string last_words = co_await machine.vm->console_tail();
  log::warn("sandbox.boot_failed", {{"sandbox", record.id}, {"vm", vm}, {"error", booted.error()}, {"console", last_words}});
  if (auto gone = co_await parts_.machines.destroy(std::move(machine)); !gone)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
  co_return fail(std::move(booted).error());
}

}  // namespace space::node
