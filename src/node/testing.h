// Machines without VMs, for the tests of this folder.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/random.h"
#include "node/machine.h"
#include "node/vault.h"
#include "snapshot/local_blob_store.h"

namespace space::node::testing {

class FakeVm : public vmm::Vm {
 public:
  explicit FakeVm(std::string id) : id_(std::move(id)) {}
  const std::string& id() const override { return id_; }
  vmm::VmState state() const override { return state_; }
  Task<> boot() override { co_return Result<>{}; }
  Task<> load(const vmm::DeviceState&) override { co_return Result<>{}; }
  Task<> resume() override { co_return Result<>{}; }
  Task<> pause() override { co_return Result<>{}; }
  Task<> save_base(const Fd&) override { co_return Result<>{}; }
  Task<> prepare_save(const Fd&) override { co_return Result<>{}; }
  Task<> save_devices(bool) override { co_return Result<>{}; }
  Task<wire::MemoryFiles> memory() override { co_return wire::MemoryFiles{}; }
  Task<> prepare_disk(const Fd&) override { co_return Result<>{}; }
  Task<> switch_disk() override {
    if (failing_switches_ > 0 && failing_switches_-- > 0) co_return fail(ErrorKind::unavailable, "switch_failed", "as the test wants it");
    co_return Result<>{};
  }
  Task<> discard_disk() override {
    ++discarded_;
    co_return Result<>{};
  }
  Task<> replace_generations(std::size_t, std::vector<Fd> generations) override {
    replaced_.push_back(generations.size());
    co_return Result<>{};
  }
  Task<> close() override { co_return Result<>{}; }
  Task<> destroy() override { co_return Result<>{}; }
  asio::awaitable<void> ended() override { co_await sleep_for(std::chrono::hours(1)); }
  asio::awaitable<std::string> console_tail() override { co_return std::string("last words"); }
  http::Connector agent_connector() override { return {}; }
  http::Connector port_connector(std::uint16_t) override { return {}; }
  pid_t pid() const override { return 0; }
  Task<> set_cpu_weight(std::uint32_t weight) override {
    weight_ = weight;
    co_return Result<>{};
  }
  std::uint32_t weight_ = 0;  // 0: as it was made
  vmm::VmState state_ = vmm::VmState::waiting;
  int failing_switches_ = 0, discarded_ = 0;
  std::vector<std::size_t> replaced_;  // how many generations came each time

 private:
  std::string id_;
};

// Machines that exist in a set, and steps that take as long, and go as wrong, as the test says.
class FakeMachines : public Machines {
 public:
  // The folder is what the real one makes and removes; nullptr: no folders.
  explicit FakeMachines(const RecordStore* records = nullptr) : records_(records) {}

  Task<Machine> spawn(std::shared_ptr<const tmpl::Base> base, Spans&, bool) override {
    ++busy_;
    most_busy_ = std::max(most_busy_, busy_);
    co_await sleep_for(step_);
    --busy_;
    if (auto wrong = fault("spawn"); !wrong) co_return fail(wrong.error());
    Machine machine = made(new_id());
    machine.base = std::move(base);
    if (records_) CO_TRY_VOID(records_->make_pool_folder(machine.id));
    last_end_ = machine.on_end;
    co_return machine;
  }
  Task<> load(Machine& machine, Spans&) override { co_return co_await step("load", machine, vmm::VmState::paused); }
  Task<Machine> assemble(Assembly parts, Spans&) override {
    co_await sleep_for(step_);
    if (auto wrong = fault("assemble"); !wrong) co_return fail(wrong.error());
    Machine machine = made(parts.vm);
    machine.base = std::move(parts.base);
    last_end_ = machine.on_end;
    co_return machine;
  }
  Task<> load_saved(Machine& machine, std::uint64_t, SavedState, Spans&) override {
    co_return co_await step("load_saved", machine, vmm::VmState::paused);
  }
  Task<> boot(Machine& machine, Spans&) override { co_return co_await step("boot", machine, vmm::VmState::running); }
  Task<Capture> prepare_capture(Machine&, std::uint64_t, Spans&) override {
    Capture capture;
    capture.devices = Fd(::memfd_create("devices", MFD_CLOEXEC));
    capture.pages.file = Fd(::memfd_create("pages", MFD_CLOEXEC));
    CO_TRY_VOID(write_all(capture.devices, "devices"));
    co_return capture;
  }
  Task<> capture_devices(Machine& machine, bool, Spans&) override { co_return co_await step("capture", machine, vmm::VmState::paused); }
  Task<> capture_pages(Machine&, std::uint64_t, Capture&, Spans&) override { co_return Result<>{}; }
  Task<> resume(Machine& machine, Spans&) override { co_return co_await step("resume", machine, vmm::VmState::running); }
  Task<> warm(Machine& machine) override { co_return co_await step("warm", machine, vmm::VmState::paused); }
  Task<> activate(Machine& machine, const Identity& identity, Spans&) override {
    CO_TRY_VOID(co_await step("activate", machine, vmm::VmState::running));
    frozen_.erase(machine.id);
    identities_[machine.id] = identity;
    co_return Result<>{};
  }
  // One that fails has frozen some.
  Task<> freeze(Machine& machine, Spans&, std::chrono::milliseconds limit) override {
    co_await sleep_for(step_);
    freeze_limit_ = limit;
    frozen_.insert(machine.id);
    if (auto wrong = fault("freeze"); !wrong) co_return fail(guest_not_frozen("as the test wants it"));
    co_return Result<>{};
  }
  Task<> pause(Machine& machine, Spans&) override { co_return co_await step("pause", machine, vmm::VmState::paused); }
  // The bytes of all of them one after another: enough to be another image each time.
  Task<> merge_generations(vmm::DiskMerge merge) override {
    co_await sleep_for(merging_);
    if (auto wrong = fault("merge"); !wrong) co_return wrong;
    ++merges_;
    for (const Fd& one : merge.generations) {
      CO_TRY(const std::string bytes, read_fd(one, 1 << 20));
      CO_TRY_VOID(write_all(merge.into, bytes));
    }
    co_return Result<>{};
  }
  Task<Machine> adopt(const std::string& id) override {
    if (!alive_.contains(id)) co_return fail(ErrorKind::not_found, "vm_not_found", "none");
    Machine machine = made(id);
    static_cast<FakeVm&>(*machine.vm).state_ = states_.contains(id) ? states_[id] : vmm::VmState::running;
    co_return machine;
  }
  Task<> destroy(Machine machine) override {
    *machine.on_end = nullptr;
    co_await sleep_for(step_);
    if (auto wrong = fault("destroy"); !wrong) co_return wrong;
    EXPECT_EQ(alive_.erase(machine.id), 1u) << "destroyed twice";
    if (records_) CO_TRY_VOID(records_->remove_pool_folder(machine.id));
    co_return Result<>{};
  }

  // The VMM of `machine` is gone.
  void kill(const Machine& machine) {
    static_cast<FakeVm&>(*machine.vm).state_ = vmm::VmState::ended;
    if (const auto end = std::exchange(*machine.on_end, nullptr)) end();
  }

  std::set<std::string> alive_;
  std::set<std::string> frozen_;  // VMs in which at least some processes stand still
  std::map<std::string, Identity> identities_;
  std::map<std::string, vmm::VmState> states_;  // what an adoption finds
  std::map<std::string, int> failing_;          // step → how many times
  std::shared_ptr<std::function<void()>> last_end_;
  http::Connector agent_;  // to a fake agent, for the data plane
  asio::any_io_executor executor_;
  std::chrono::milliseconds step_{1}, freeze_limit_{0};
  std::chrono::milliseconds merging_{1};
  int busy_ = 0, most_busy_ = 0, merges_ = 0;

 private:
  Machine made(const std::string& id) {
    Machine machine;
    machine.id = id;
    machine.vm = std::make_shared<FakeVm>(id);
    if (agent_) machine.agent = std::make_shared<wire::AgentClient>(executor_, agent_);
    alive_.insert(id);
    return machine;
  }
  Result<> fault(const std::string& name) {
    if (failing_[name] == 0) return {};
    --failing_[name];
    return fail(ErrorKind::unavailable, name + "_failed", "as the test wants it");
  }
  Task<> step(std::string name, Machine& machine, vmm::VmState after) {
    co_await sleep_for(step_);
    CO_TRY_VOID(fault(name));
    static_cast<FakeVm&>(*machine.vm).state_ = after;
    co_return Result<>{};
  }
  const RecordStore* records_;
};

// A vault in `folder` whose files nobody needs to freeze.
inline std::unique_ptr<Vault> vault_in(const std::filesystem::path& folder) {
  const snapshot::FreezeFile freeze = [](const Fd&, bool) -> Result<> { return {}; };
  snapshot::LocalStoreOptions options;
  options.freeze = freeze;
  auto store = snapshot::LocalBlobStore::open(folder / "store", std::move(options)).value();
  return std::make_unique<Vault>(std::move(store), snapshot::ManifestKey::open(folder / "manifest.key").value(), freeze,
                                 folder / "fetched");
}

inline std::shared_ptr<const tmpl::Base> base_named(const std::string& key) {
  auto base = std::make_shared<tmpl::Base>();
  base->key = key;
  base->release.digest = "sha256:" + key;
  return base;
}

// Waits until `condition` holds, at most some seconds.
asio::awaitable<void> until(auto condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) co_await sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(condition());
}

}  // namespace space::node::testing
