// One VM with its agent's client, from the spawn to the end, and the few things that are done with it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "node/deadline.h"
#include "node/guest_error.h"
#include "node/record.h"
#include "node/spans.h"
#include "snapshot/memory_state.h"
#include "template/base_images.h"
#include "vmm/driver.h"
#include "wire/agent_client.h"

namespace space::node {

class FairShares;
class Gateway;

// For an agent that must answer: twenty guests that begin at once on two cores, without hardware virtualisation, take so long.
inline constexpr std::chrono::milliseconds kInitLimit = std::chrono::seconds(30);
// For a freeze that can be done without. The agent's own limit counts the guest's time.
inline constexpr std::chrono::milliseconds kFreezeLimit = wire::kFreezeLimit + std::chrono::seconds(1);

// The guest's memory from outside, and which of its pages may have changed. Used on the pool, while the VM stands still.
struct MemoryView {
  // `image`: what the VM maps, nullptr when that is not known.
  MemoryView(snapshot::GuestMemory found, const Fd& watch, const Fd* image)
      : memory(std::move(found)), dirty(snapshot::watch_writes(memory, watch, image)) {}
  snapshot::GuestMemory memory;
  std::unique_ptr<snapshot::DirtyPages> dirty;
};

struct Machine {
  std::string id;                          // the VM's
  std::shared_ptr<MemoryView> memory;      // once it was asked for
  std::shared_ptr<const tmpl::Base> base;  // nullptr after an adoption
  std::shared_ptr<vmm::Vm> vm;
  std::shared_ptr<wire::AgentClient> agent;
  // Called once, on the loop, when the VMM is gone for any reason. Its owner replaces it when the machine changes hands.
  std::shared_ptr<std::function<void()>> on_end = std::make_shared<std::function<void()>>();
  explicit operator bool() const { return vm != nullptr; }
};

// An answer of the agent, waited for at most `limit` and no longer than its VM lives; errors as guest_error makes them, and
// conflict/sandbox_ended when the VM is gone. `doing` completes "the agent did not answer (…)".
template <class T>
Task<T> ask_agent(const Machine& machine, Task<T> task, std::chrono::milliseconds limit, std::string doing) {
  const auto vm = machine.vm;
  auto answer = co_await with_deadline(std::move(task), limit, agent_not_answering(doing, "no answer in time"), vm->ended(), vm_gone());
  if (!answer && answer.error().code != "sandbox_ended") co_return fail(guest_error(answer.error(), doing));
  co_return answer;
}

// What a VM other than a base's plain copy is made of.
struct Assembly {
  std::string vm;  // the VM's id to be; its pool folder is the caller's
  std::shared_ptr<const tmpl::Base> base;
  std::vector<Fd> disks;       // above the base's own files, bottom to top; the last one is written
  vmm::Size size;              // its base's own, or another for one that boots
  std::string vmm_build;       // that is to run it; "": the current one
  bool memory_of_base = true;  // else its memory stands over nothing
  bool boots = false;          // else it waits for load_saved
};

// What a VM is loaded with in place of its base's state.
struct SavedState {
  Fd devices;
  std::function<Result<>(const snapshot::GuestMemory&)> write_pages;  // on the pool
};

// What was read of a VM that stood still. Small: the devices, and the pages that it may have changed.
struct Capture {
  Fd devices;
  snapshot::CapturedPages pages;
};

// Who the guest is to be from now on.
struct Identity {
  std::string sandbox;
  std::string hostname;
  std::string machine_id;
  std::map<std::string, std::string> env;
  std::uint64_t epoch = 1;
  std::string tenant = {};                        // "": a machine of the pool, which has no network
  std::string lineage = {};                       // see Gateway::Member
  bool loaded = false;                            // from storage or as a fork: connections of its old life are closed
  std::shared_ptr<const std::string> names = {};  // see Gateway::Member
};

// Makes and handles machines; an interface so that pools and lifecycle can be tested without a VM. For node's loop.
class Machines {
 public:
  virtual ~Machines() = default;
  // Of a VM that this build runs; "" is the current one. vmm::Driver::state_key_of.
  virtual std::string state_key(const std::string& /*vmm_build*/) const { return {}; }
  // A VMM waiting for its load, with a fresh overlay in its pool folder. `ahead`: vmm::VmSpec's.
  virtual Task<Machine> spawn(std::shared_ptr<const tmpl::Base> base, Spans& spans, bool ahead) = 0;
  virtual Task<> load(Machine& machine, Spans& spans) = 0;  // waiting → paused
  virtual Task<Machine> assemble(Assembly parts, Spans& spans) = 0;
  virtual Task<> load_saved(Machine& machine, std::uint64_t memory_bytes, SavedState state, Spans& spans) = 0;  // waiting → paused
  virtual Task<> boot(Machine& machine, Spans& spans) = 0;  // waiting → running, its agent answers
  // Capturing, in three steps so that the guest stands still for the least time. The first is for any time before the second, and good
  // until the guest runs again. The second does what pause() does, where it runs, and saves its devices; it is paused from there on;
  // whoever wants it frozen asks for that before. With `disk`, vmm::Vm::save_devices' own: the prepared generation of its disk goes on top
  // meanwhile, and vm->switch_disk() tells of that.
  virtual Task<Capture> prepare_capture(Machine& machine, std::uint64_t memory_bytes, Spans& spans) = 0;
  virtual Task<> capture_devices(Machine& machine, bool disk, Spans& spans) = 0;
  // Reads pages after the devices: saving those may still write to the guest's memory. The VMM has no part in it.
  virtual Task<> capture_pages(Machine& machine, std::uint64_t memory_bytes, Capture& into, Spans& spans) = 0;
  // Lets the guest answer once, one command included, and pauses it again: a create from here finds everything translated.
  virtual Task<> warm(Machine& machine) = 0;
  // Runs the vCPUs: activate() without the rest, which is to follow. For who has more to do at once, of which nothing is to be in the way.
  virtual Task<> resume(Machine& machine, Spans& spans) = 0;
  // Runs the vCPUs and gives the guest clock, entropy and identity; its processes run only after that.
  virtual Task<> activate(Machine& machine, const Identity& identity, Spans& spans) = 0;
  // The guest's users' processes stand still when this returns, until the next activate(). conflict/guest_not_frozen when its agent says
  // that they do not, unavailable when it does not say anything within `limit`: some of them may, and the VM goes on.
  virtual Task<> freeze(Machine& machine, Spans& spans, std::chrono::milliseconds limit) = 0;
  Task<> freeze(Machine& machine, Spans& spans) { return freeze(machine, spans, kFreezeLimit); }
  virtual Task<> pause(Machine& machine, Spans& spans) = 0;  // the vCPUs alone: see stand_still()
  // The guest writes what it holds in memory to its disk, as before a power switch, in `limit` at most; one that was paused is so again
  // afterwards. What a guest that does not answer had not written is missing where somebody boots from that disk.
  virtual asio::awaitable<void> flush(Machine& /*machine*/, std::chrono::milliseconds /*limit*/, Spans& /*spans*/) { co_return; }
  // vmm::Driver's: several generations of a disk into one image, away from every VM.
  virtual Task<> merge_generations(vmm::DiskMerge merge) = 0;
  virtual Task<Machine> adopt(const std::string& vm_id) = 0;
  // What the gateway knows of a sandbox that belongs to its checkpoints (Gateway::names); "" where there is no gateway.
  virtual Task<std::string> gateway_state(std::string) { co_return std::string(); }
  // Process, namespace, cgroup, pool folder: nothing is left on success. On an error it is tried again in the background.
  virtual Task<> destroy(Machine machine) = 0;
};

// Machines::freeze of a real one.
Task<> freeze_users(const Machine& machine, std::chrono::milliseconds limit);

// Freezes and pauses. False where its users' processes ran until the pause, as those of a guest whose agent does not answer. It may go on
// from there once, and lose little: they see an old clock for a moment. Twice it may not (guest_not_frozen).
Task<bool> stand_still(Machines& machines, Machine& machine, Spans& spans);

// It was made ahead, at a small weight; from here on somebody waits for it.
asio::awaitable<void> hurry(std::shared_ptr<vmm::Vm> vm);

// Without a gateway (sim) no machine has a network.
std::unique_ptr<Machines> make_machines(asio::any_io_executor executor, vmm::Driver& driver, tmpl::BaseImages& bases,
                                        const RecordStore& records, BlockingPool& pool, FairShares& shares, Gateway* gateway = nullptr);

}  // namespace space::node
