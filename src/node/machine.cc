#include "node/machine.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <map>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "node/deadline.h"
#include "node/gateway.h"
#include "node/guest_error.h"
#include "node/shares.h"
#include "snapshot/memory_image.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kWarmLimit = seconds(30);
constexpr milliseconds kBootLimit = seconds(180);  // some seconds; much more on a host that is busy
constexpr milliseconds kBootTry = seconds(2);
constexpr milliseconds kBootPause{50};

class RealMachines : public Machines {
 public:
  RealMachines(asio::any_io_executor executor, vmm::Driver& driver, tmpl::BaseImages& bases, const RecordStore& records, BlockingPool& pool,
               FairShares& shares, Gateway* gateway)
      : executor_(std::move(executor)),
        driver_(driver),
        bases_(bases),
        records_(records),
        pool_(pool),
        shares_(shares),
        gateway_(gateway) {}

  std::string state_key(const std::string& vmm_build) const override {
    return vmm_build.empty() ? driver_.state_key() : driver_.state_key_of(vmm_build);
  }

  Task<Machine> spawn(std::shared_ptr<const tmpl::Base> base, Spans& spans, bool ahead) override {
    const std::string id = new_id();
    Spans::Step copying(spans, "overlay");
    auto overlay = co_await pool_.run([&] { return make_overlay(id, *base); });
    copying.end();
    if (!overlay) {
      co_await forget_folder(id);
      co_return fail(std::move(overlay).error());
    }
    Spans::Step spawning(spans, "spawn");
    Fd disk = std::move(*overlay);
    auto vm = co_await bases_.spawn(*base, id, std::move(disk), ahead);
    spawning.end();
    if (!vm) {
      const Error error = vm.error();
      if (auto swept = co_await driver_.sweep(id); !swept) log::warn("vm.sweep_failed", {{"vm", id}, {"error", swept.error()}});
      co_await forget_folder(id);
      co_return fail(error);
    }
    co_return own(id, std::move(base), std::shared_ptr<vmm::Vm>(std::move(*vm)));
  }

  Task<> load(Machine& machine, Spans& spans) override {
    {
      // From the first write on: what is written before it is watched for would never be found.
      const Spans::Step step(spans, "watch");
      auto view = co_await memory_of(machine, std::uint64_t{machine.base->size.memory_mib} << 20);
      if (!view) (void)machine.vm->take_write_watch();
    }
    Spans::Step step(spans, "load");
    co_return co_await bases_.load(*machine.base, *machine.vm);
  }

  Task<Machine> assemble(Assembly parts, Spans& spans) override {
    const Spans::Step step(spans, "spawn");
    const std::string id = parts.vm;
    vmm::VmSpec spec;
    spec.id = id;
    spec.size = parts.size;
    spec.images = &parts.base->images;
    spec.vmm_build = parts.vmm_build;
    spec.begin = parts.boots ? vmm::VmSpec::Begin::boot : vmm::VmSpec::Begin::load_devices;
    if (parts.memory_of_base) {
      CO_TRY(spec.memory, parts.base->memory.duplicate());
    } else {
      CO_TRY(spec.memory, empty_memory(spec.size.memory_mib));
    }
    for (const vmm::DiskLayer& layer : parts.base->disk) {
      CO_TRY(Fd file, layer.file.duplicate());
      spec.disk.push_back({std::move(file), layer.format, true});
    }
    for (Fd& file : parts.disks) spec.disk.push_back({std::move(file), vmm::DiskLayer::Format::qcow2, &file != &parts.disks.back()});
    auto vm = co_await driver_.spawn(std::move(spec));
    if (vm) co_return own(id, std::move(parts.base), std::shared_ptr<vmm::Vm>(std::move(*vm)));
    if (auto swept = co_await driver_.sweep(id); !swept) log::warn("vm.sweep_failed", {{"vm", id}, {"error", swept.error()}});
    co_return fail(std::move(vm).error());
  }

  Task<> load_saved(Machine& machine, std::uint64_t memory_bytes, SavedState state, Spans& spans) override {
    {
      const Spans::Step step(spans, "pages");
      CO_TRY(const auto view, co_await memory_of(machine, memory_bytes));
      const auto write = std::move(state.write_pages);
      auto work = [view, write]() -> Result<> {
        TRY_VOID(write(view->memory));
        TRY_VOID(view->dirty->take());
        view->dirty->confirm();  // from here on: what differs from what was loaded
        return {};
      };
      CO_TRY_VOID(co_await pool_.run(work));
    }
    const Spans::Step step(spans, "load");
    const vmm::DeviceState devices{std::move(state.devices), false};
    co_return co_await machine.vm->load(devices);
  }

  Task<> boot(Machine& machine, Spans& spans) override {
    const Spans::Step step(spans, "boot");
    // Its VMM has put the kernel into the memory already, unwatched: what it writes is found by a full scan.
    (void)machine.vm->take_write_watch();
    CO_TRY_VOID(co_await machine.vm->boot());
    for (const auto end = std::chrono::steady_clock::now() + kBootLimit;;) {
      auto answer = co_await ask_agent(machine, machine.agent->health(), kBootTry, "boot");
      if (answer) co_return Result<>{};
      if (answer.error().code == "sandbox_ended") co_return fail(std::move(answer).error());
      if (std::chrono::steady_clock::now() > end)
        co_return fail(ErrorKind::unavailable, "agent_not_ready", "the guest booted for minutes and its agent did not answer",
                       "look at its console in node's log");
      co_await sleep_for(kBootPause);
    }
  }

  Task<Capture> prepare_capture(Machine& machine, std::uint64_t memory_bytes, Spans& spans) override {
    const Spans::Step step(spans, "prepare");
    Capture capture;
    CO_TRY(capture.devices, open_file(records_.spool(), O_RDWR | O_TMPFILE));
    CO_TRY_VOID(co_await machine.vm->prepare_save(capture.devices));
    CO_TRY_VOID(co_await memory_of(machine, memory_bytes));
    co_return capture;
  }

  Task<> capture_devices(Machine& machine, bool disk, Spans& spans) override {
    const bool runs = machine.vm->state() == vmm::VmState::running;
    const Spans::Step step(spans, runs ? "pause" : "devices");
    auto saved = co_await machine.vm->save_devices(disk);
    if (machine.vm->state() == vmm::VmState::paused) shares_.leave(machine.id);
    co_return saved;
  }

  Task<> resume(Machine& machine, Spans& spans) override { co_return co_await run(machine.vm, spans); }

  Task<> capture_pages(Machine& machine, std::uint64_t memory_bytes, Capture& into, Spans& spans) override {
    const Spans::Step step(spans, "pages");
    CO_TRY(const auto view, co_await memory_of(machine, memory_bytes));
    const std::string spool = records_.spool().string();
    auto read = [view, spool]() -> Result<snapshot::CapturedPages> {
      TRY(snapshot::DirtySet dirty, view->dirty->take());
      return snapshot::capture(view->memory, std::move(dirty), spool);
    };
    CO_TRY(into.pages, co_await pool_.run(read));
    co_return Result<>{};
  }

  Task<> warm(Machine& machine) override {
    Spans unused(system_clock());
    Identity nobody{machine.id, "sandbox", std::string(32, '0'), {}, 1};
    CO_TRY_VOID(co_await activate(machine, nobody, unused));
    CO_TRY_VOID(co_await ask_agent(machine, run_once(machine.agent), kWarmLimit, "run its first command"));
    CO_TRY_VOID(co_await ask_agent(machine, machine.agent->freeze(), kInitLimit, "freeze its processes"));
    co_return co_await machine.vm->pause();
  }

  Task<> activate(Machine& machine, const Identity& identity, Spans& spans) override {
    wire::AgentInit init;
    // One that is made ahead stays at the small weight that it has, also while it is warmed: that is most of its work.
    if (!identity.tenant.empty()) shares_.join(machine.id, identity.tenant);
    {
      using namespace asio::experimental::awaitable_operators;
      auto running = run(machine.vm, spans);
      auto admitted = admit(machine.id, identity, spans);
      auto [resumed, authority] = co_await (std::move(running) && std::move(admitted));
      CO_TRY_VOID(std::move(resumed));
      init.ca = std::move(authority);
    }
    Spans::Step step(spans, "init");
    init.nonce = new_id();
    init.sandbox_id = identity.sandbox;
    init.hostname = identity.hostname;
    init.machine_id = identity.machine_id;
    init.env = identity.env;
    init.epoch = identity.epoch;
    init.loaded = identity.loaded;
    std::array<std::byte, 64> entropy;
    random_bytes(entropy);
    init.entropy.assign(reinterpret_cast<const char*>(entropy.data()), entropy.size());
    init.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    co_return co_await ask_agent(machine, machine.agent->init(init), kInitLimit, "take its identity");
  }

  Task<> freeze(Machine& machine, Spans& spans, milliseconds limit) override {
    const Spans::Step step(spans, "freeze");
    co_return co_await freeze_users(machine, limit);
  }

  Task<> pause(Machine& machine, Spans& spans) override {
    Spans::Step step(spans, "pause");
    auto paused = co_await machine.vm->pause();
    if (paused) shares_.leave(machine.id);
    co_return paused;
  }

  asio::awaitable<void> flush(Machine& machine, milliseconds limit, Spans& spans) override {
    const Spans::Step step(spans, "flush");
    const bool stood = machine.vm->state() == vmm::VmState::paused;
    Result<> done;
    // Its kernel and its agent are enough for this: the users' processes were frozen before the pause, and thaw with an init alone.
    if (stood) done = co_await machine.vm->resume();
    if (done) done = co_await ask_agent(machine, machine.agent->sync(), limit, "write its disk");
    if (!done) log::warn("agent.sync_failed", {{"vm", machine.id}, {"error", done.error()}});
    if (!stood) co_return;
    if (auto stands = co_await machine.vm->pause(); !stands) log::warn("vm.pause_failed", {{"vm", machine.id}, {"error", stands.error()}});
  }

  Task<> merge_generations(vmm::DiskMerge merge) override { co_return co_await driver_.merge_generations(std::move(merge)); }

  Task<Machine> adopt(const std::string& vm_id) override {
    CO_TRY(auto vm, co_await driver_.adopt(vm_id));
    co_return own(vm_id, nullptr, std::shared_ptr<vmm::Vm>(std::move(vm)));
  }

  Task<std::string> gateway_state(std::string sandbox) override {
    if (!gateway_) co_return std::string();
    co_return co_await gateway_->names(std::move(sandbox));
  }

  Task<> destroy(Machine machine) override {
    *machine.on_end = nullptr;
    shares_.leave(machine.id);
    if (gateway_) co_await gateway_->dismiss(machine.id);  // first: its sockets would keep the namespace
    auto done = co_await machine.vm->destroy();
    if (done) done = co_await pool_.run([&] { return records_.remove_pool_folder(machine.id); });
    if (!done) space::spawn(executor_, destroy_later(machine.id));
    co_return done;
  }

 private:
  static Task<> run(std::shared_ptr<vmm::Vm> vm, Spans& spans) {
    if (vm->state() == vmm::VmState::running) co_return Result<>{};
    const Spans::Step step(spans, "resume");
    co_return co_await vm->resume();
  }

  asio::awaitable<std::string> admit(std::string vm, const Identity& identity, Spans& spans) {
    if (!gateway_ || identity.tenant.empty()) co_return std::string();
    const Spans::Step step(spans, "gateway");
    Gateway::Member member{identity.sandbox, identity.tenant, identity.lineage, identity.names};
    co_return co_await gateway_->admit(std::move(vm), std::move(member));
  }

  Task<std::shared_ptr<MemoryView>> memory_of(Machine& machine, std::uint64_t bytes) {
    if (!machine.memory) {
      CO_TRY(wire::MemoryFiles files, co_await machine.vm->memory());
      auto shared = std::make_shared<wire::MemoryFiles>(std::move(files));
      auto watch = std::make_shared<Fd>(machine.vm->take_write_watch());
      const std::shared_ptr<const tmpl::Base> base = machine.base;
      auto find = [shared, watch, base, bytes]() -> Result<std::shared_ptr<MemoryView>> {
        TRY(auto found, snapshot::GuestMemory::find(std::move(shared->memory), std::move(shared->pagemap), shared->maps, bytes));
        return std::make_shared<MemoryView>(std::move(found), *watch, base ? &base->memory : nullptr);
      };
      CO_TRY(machine.memory, co_await pool_.run(find));
    }
    co_return machine.memory;
  }

  // One for all VMs of a size: sealed like a base's, so that nobody can put anything into it for others.
  Result<Fd> empty_memory(std::uint32_t mib) {
    auto& kept = empty_memory_[mib];
    if (!kept) {
      TRY(Fd made, snapshot::new_guest_memory(std::uint64_t{mib} << 20));
      if (::fcntl(made.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        return fail_errno(errno, "seal a memory file");
      kept = std::move(made);
    }
    return kept.duplicate();
  }

  Result<Fd> make_overlay(const std::string& id, const tmpl::Base& base) const {
    TRY(auto folder, records_.make_pool_folder(id));
    TRY(Fd overlay, open_file(folder / "disk.qcow2", O_RDWR | O_CREAT | O_EXCL));
    TRY_VOID(copy_file_sparse(base.empty_overlay, overlay));
    return overlay;
  }

  asio::awaitable<void> forget_folder(std::string id) {
    auto gone = co_await pool_.run([&] { return records_.remove_pool_folder(id); });
    if (!gone) log::warn("pool.folder_left", {{"vm", id}, {"error", gone.error()}});
  }

  // Nothing may stay behind because the warden was away for a moment.
  asio::awaitable<void> destroy_later(std::string id) {
    for (milliseconds pause = seconds(1);; pause = std::min<milliseconds>(pause * 2, seconds(60))) {
      co_await sleep_for(pause);
      auto done = co_await driver_.sweep(id);
      if (done) done = co_await pool_.run([&] { return records_.remove_pool_folder(id); });
      if (done) co_return;
      log::warn("vm.destroy_failed", {{"vm", id}, {"error", done.error()}});
    }
  }

  Machine own(const std::string& id, std::shared_ptr<const tmpl::Base> base, std::shared_ptr<vmm::Vm> vm) {
    Machine machine;
    machine.id = id;
    machine.base = std::move(base);
    machine.vm = std::move(vm);
    machine.agent = std::make_shared<wire::AgentClient>(executor_, machine.vm->agent_connector());
    space::spawn(executor_, watch(machine.vm, machine.on_end, shares_));
    return machine;
  }

  static asio::awaitable<void> watch(std::shared_ptr<vmm::Vm> vm, std::shared_ptr<std::function<void()>> on_end, FairShares& shares) {
    co_await vm->ended();
    shares.leave(vm->id());
    const auto call = std::exchange(*on_end, nullptr);
    if (call) call();
  }

  static Task<> run_once(std::shared_ptr<wire::AgentClient> agent) {
    wire::ProcessSpec spec;
    spec.argv = {"echo", "ready"};  // with output: pipe, window and stream are translated too
    CO_TRY(const std::uint32_t process, co_await agent->create(spec));
    CO_TRY(auto stream, co_await agent->attach(process, 0));
    for (;;) {
      CO_TRY(auto frames, co_await stream->next());
      if (frames.empty()) co_return Result<>{};
    }
  }

  asio::any_io_executor executor_;
  vmm::Driver& driver_;
  tmpl::BaseImages& bases_;
  const RecordStore& records_;
  BlockingPool& pool_;
  FairShares& shares_;
  Gateway* gateway_;
  std::map<std::uint32_t, Fd> empty_memory_;  // by MiB
};

// What the agent says of the processes, before it is looked at as an error of the agent.
Task<> ask_to_freeze(std::shared_ptr<wire::AgentClient> agent) {
  auto frozen = co_await agent->freeze();
  if (!frozen && frozen.error().code == "freeze_failed")
    co_return fail(guest_not_frozen("end what hangs in it on a disk or a mount (state D in ps), or wait for that, and try again"));
  co_return frozen;
}

}  // namespace

Task<> freeze_users(const Machine& machine, milliseconds limit) {
  auto asking = ask_to_freeze(machine.agent);
  auto frozen = co_await ask_agent(machine, std::move(asking), limit, "freeze its processes");
  if (frozen || frozen.error().code == "sandbox_ended") co_return frozen;
  Error error = std::move(frozen).error();
  log::warn("agent.freeze_failed", {{"vm", machine.id}, {"error", error}});
  if (error.code != "guest_not_frozen") {
    error.kind = ErrorKind::unavailable;  // its processes may be as willing as others
    error.next = "try again: a host that is busy makes an agent slow; when it stays so, the sandbox's own processes have hurt its agent";
  }
  co_return fail(std::move(error));
}

Task<bool> stand_still(Machines& machines, Machine& machine, Spans& spans) {
  const auto frozen = co_await machines.freeze(machine, spans);
  CO_TRY_VOID(co_await machines.pause(machine, spans));
  co_return frozen.has_value();
}

asio::awaitable<void> hurry(std::shared_ptr<vmm::Vm> vm) {
  (void)co_await vm->set_cpu_weight(wire::kWholeCpuWeight);  // an error is the next step's to find
}

std::unique_ptr<Machines> make_machines(asio::any_io_executor executor, vmm::Driver& driver, tmpl::BaseImages& bases,
                                        const RecordStore& records, BlockingPool& pool, FairShares& shares, Gateway* gateway) {
  return std::make_unique<RealMachines>(std::move(executor), driver, bases, records, pool, shares, gateway);
}

}  // namespace space::node
