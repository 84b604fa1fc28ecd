// The table of this machine's sandboxes and what is done with them: create, delete, pause, resume, and their end.
//
// Each sandbox has a strand: its operations follow one another in the order in which they came, those of different sandboxes run
// side by side. A delete does not wait for a create to succeed: it marks the sandbox, the create gives up at its next step and
// takes away what it made, and the delete then finds nothing.
//
// What survives a kill -9 at any point (docs/states.md, recovery.h): a sandbox exists from the rename that publishes its folder to
// the rename that discards it. VMs that no published record names, and pool folders, are leftovers.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/clock.h"
#include "node/bases.h"
#include "node/events.h"
#include "node/pools.h"
#include "node/record.h"
#include "node/sandbox.h"
#include "node/vault.h"

namespace space::node {

struct CreateRequest {
  std::string id;
  std::string operation;
  std::string tenant;
  std::string template_reference;
  WantedSize size;
  std::map<std::string, std::string> env;
  std::string hostname;    // "": made of the id
  std::string checkpoint;  // "": from the template; else everything else of the sandbox comes from there
  std::string kept;        // SandboxRecord::kept
};

// What may be changed of a sandbox that is there. Names in `env` are set or, without a value, taken out; the others stay.
struct SandboxChanges {
  std::map<std::string, std::optional<std::string>> env;
  std::optional<std::uint32_t> cpus, memory_mib;
};

inline constexpr const char* kGatewayState = "gateway.json";  // in the folder of a sandbox that was made from a checkpoint
std::shared_ptr<const std::string> read_gateway_state(const std::filesystem::path& folder);  // nullptr when there is none; blocks

struct Done {
  SandboxRecord record;
  std::vector<Span> spans;
};

class Sandboxes {
 public:
  struct Parts {  // all outlive this
    Machines& machines;
    BaseSource& bases;
    Pools& pools;
    const RecordStore& records;
    BlockingPool& disk;
    Events& events;
    const Clock& clock;
    Vault& vault;
    std::string vmm_build;  // that writes device states now
  };
  Sandboxes(asio::any_io_executor executor, Parts parts, std::size_t most);

  // Idempotent by (id, operation). Errors: conflict/sandbox_exists, conflict/sandbox_deleted, resource_exhausted/node_full,
  // not_found/template_not_found, and whatever a step failed with; then nothing of the sandbox is left.
  Task<Done> create(CreateRequest request);
  Task<std::vector<Span>> remove(std::string id, std::string operation);  // an unknown id is a success
  Task<Done> pause(std::string id, std::string operation);
  Task<Done> resume(std::string id, std::string operation);
  // sandboxes_save.cc. All of them are idempotent by their operation, and an error leaves the state as it was.
  Task<Done> suspend(std::string id, std::string operation);
  Task<Done> stop(std::string id, std::string operation);
  // Resume, back from storage, or start from the disk: whichever the state asks for. conflict/saved_state_unusable when the build
  // that wrote the state is not here any more; then start() is what remains.
  Task<Done> wake(std::string id, std::string operation);
  Task<Done> start(std::string id, std::string operation);
  // sandboxes_update.cc. A running guest has a new environment at once, any other with its next load. A size is taken by a boot:
  // conflict/size_in_memory while there is memory of another one (unless stopped or ended).
  Task<Done> update(std::string id, std::string operation, SandboxChanges changes);
  // sandboxes_checkpoint.cc. `checkpoint`: the id of the one to be made, or to go back to.
  Task<Done> checkpoint(std::string id, std::string operation, std::string checkpoint, std::string name);
  Task<Done> restore(std::string id, std::string operation, std::string checkpoint);
  // sandboxes_snapshot.cc. The disk alone, as it is after the guest wrote what it had in memory; the sandbox goes on. Idempotent by
  // `snapshot`.
  struct SnapshotOrder {
    std::string snapshot;  // its id to be
    std::string name;
    bool automatic = false;
  };
  Task<Done> snapshot(std::string id, SnapshotOrder order);
  // sandboxes_path.cc. Copies one path out of a checkpoint's or snapshot's disk into the running sandbox.
  Task<Done> restore_path(std::string id, std::string checkpoint, std::string path, std::string into);
  std::int64_t disk_mark(const std::string& id) const;  // changes when its disk is written to; 0 for none
  // How often its disk is kept by itself (0: never), and how many of those stay.
  Task<Done> set_snapshots(std::string id, std::int64_t every_s, std::int64_t keep);
  Task<> set_mounts(std::string id, std::vector<VolumeMount> mounts);
  Task<> set_kept(std::string id, std::string kept);  // SandboxRecord::kept, durable when it returns
  std::vector<std::shared_ptr<Sandbox>> with_mounts() const;

  // nullptr when there is none. Holding it keeps its machine's objects alive, not its VM.
  std::shared_ptr<Sandbox> find(std::string_view id) const;
  std::vector<SandboxRecord> list() const;            // copies, for what is looked at over time
  std::vector<std::shared_ptr<Sandbox>> all() const;  // for what is looked at now, and often

  // Recovery puts back what it found; `machine` empty: ended.
  std::shared_ptr<Sandbox> restore(SandboxRecord record, Machine machine);
  asio::awaitable<void> settle();  // waits until no operation is under way
  std::filesystem::path folder(const std::string& id) const { return parts_.records.folder(id); }
  // sandboxes_gateway.cc. Gives the guest of a VM its certificate, which the gateway could not give in time.
  asio::awaitable<void> introduce_again(std::string vm);
  std::uint64_t forgotten() const { return forgotten_; }                         // how many sandboxes went
  bool is_used(const std::string& tenant, const std::string& checkpoint) const;  // a suspended sandbox comes back from it

 private:
  struct Entered {
    std::shared_ptr<Sandbox> sandbox;
    Strand::Turn turn;
  };
  using BasePtr = std::shared_ptr<const tmpl::Base>;
  struct MergePlan;
  // The sandbox with its strand held; not_found when it is gone or going.
  Task<Entered> enter(std::string id);
  // The same, with room for one more generation of its disk: waits until older ones are merged.
  Task<Entered> enter_with_room(std::string id);
  Task<> keep_unfinished(std::shared_ptr<Sandbox> sandbox);
  void merge_soon(const std::shared_ptr<Sandbox>& sandbox);
  Task<> merge_disk(std::shared_ptr<Sandbox> sandbox);
  Task<std::shared_ptr<MergePlan>> plan_merge(SandboxRecord record, BasePtr base);
  Task<BasePtr> base_of(const SandboxRecord& record);          // that it stands on: sandboxes_base.cc, as the machines made of it
  Task<BasePtr> base_under(std::shared_ptr<Sandbox> sandbox);  // the same, without a question where its VM holds it
  // What a delete of its VM leaves to do: the VM, names of frozen files.
  Task<> give_up_machine(std::shared_ptr<Sandbox> sandbox, bool in_order, Spans& spans);
  // A VM, loaded and paused, of `record` and a checkpoint's memory.
  Task<Machine> machine_from(SandboxRecord record, std::filesystem::path folder, BasePtr base, std::shared_ptr<const Checkpoint> from,
                             std::string vm, Spans& spans);
  // Vault::check_layers, one layer after another, so that a large disk lets the layers of others come between.
  Task<> check_layers(std::string tenant, std::vector<snapshot::BlobRef> layers);
  // Spawns it while the layers of its disk are read against their names; one that stands on damaged ones is gone again.
  Task<Machine> assemble(Assembly assembly, SandboxRecord record, Spans& spans);
  // One that has booted from the record's disk in `folder`.
  Task<Machine> booted_machine(SandboxRecord record, std::filesystem::path folder, std::string vm, Spans& spans);
  // What a checkpoint says of a sandbox's addresses; with a folder it is kept there too, for a recovery before the gateway knows it.
  Task<std::shared_ptr<const std::string>> gateway_state_of(std::string tenant, std::shared_ptr<const Checkpoint> from,
                                                            std::filesystem::path folder);
  Task<std::vector<Fd>> disk_files(SandboxRecord record, std::filesystem::path folder);
  Task<Fd> new_generation(std::filesystem::path path, BasePtr base, bool durable = true);  // an empty image, durable
  // The next generation beside the present one: durable, named by the record, and open in the VM, if there is one.
  Task<> add_generation(std::shared_ptr<Sandbox> sandbox, BasePtr base, Spans& spans);
  Task<> switch_generation(std::shared_ptr<Sandbox> sandbox);  // its VM writes to the last of its disks from here on
  // Takes the last generation away again, where its VM did not switch to it.
  asio::awaitable<void> drop_generation(std::shared_ptr<Sandbox> sandbox);
  Task<Done> restore_disk(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed, std::shared_ptr<const Checkpoint> from, Spans& spans);
  Task<Done> resume_paused(Entered in, std::string operation, SandboxEvent event);
  Task<Done> come_back(Entered in, std::string operation, SandboxEvent event);
  // Puts `machine` in the place of what there was, durably, and lets it run. Before that point an error leaves everything as it was.
  Task<Done> take_over(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed, Machine machine, bool loaded, Spans& spans);
  // The same, and lets go of all that belonged to what there was: sessions, generations, a suspend's state. `held`: what the new
  // one's generations need; `memory`: the point that its memory came from.
  Task<Done> replace(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed, Machine machine, bool loaded,
                     std::unique_ptr<snapshot::Lease> held, std::shared_ptr<const snapshot::MemoryState> memory, Spans& spans);
  // The sandbox stands on the generations of `changed` from now on, durably; what they need is held before the record says so.
  Task<> stand_on(std::shared_ptr<Sandbox> sandbox, SandboxRecord changed);
  // Before anything is begun for what would not fit: some room at all, and as much as the unfrozen part of its disk occupies, where that is
  // to be kept as well.
  Task<> check_room(const SandboxRecord& record, bool with_disk);
  // For memory and disk of a sandbox as it is now; `base` outlives it.
  std::shared_ptr<Vault::Order> order_of(const Sandbox& sandbox, const tmpl::Base& base, std::string id) const;
  // Stores a capture, while the gateway says what belongs to it: `order` has that then.
  Task<Vault::Draft> gather(std::shared_ptr<Vault::Order> order, std::shared_ptr<Capture> captured);
  Task<Vault::Kept> publish(std::shared_ptr<Vault::Order> order, Vault::Draft draft);
  Task<bool> was_kept(std::shared_ptr<Sandbox> sandbox, std::string operation, std::string checkpoint);
  // What is done for a checkpoint while the guest goes on, side by side. On an error there is no new generation.
  Task<> prepare_checkpoint(std::shared_ptr<Sandbox> sandbox, BasePtr base, Capture& captured, Spans& spans);
  Task<> prepare_machine(std::shared_ptr<Sandbox> sandbox, BasePtr base, Capture& captured, Spans& spans);
  asio::awaitable<void> note_processes(std::shared_ptr<Sandbox> sandbox, Spans& spans);
  Task<> capture_and_switch(std::shared_ptr<Sandbox> sandbox, std::shared_ptr<Vault::Order> order, std::shared_ptr<Capture> captured,
                            Spans& spans);
  Task<Machine> helper_machine(std::shared_ptr<const Checkpoint> from, Spans& spans);  // running, of a checkpoint's disk, without a network
  Task<Machine> forked_machine(std::shared_ptr<Sandbox> sandbox, const CreateRequest& request, Spans& spans);
  Task<Done> make(std::shared_ptr<Sandbox> sandbox, CreateRequest request, Spans& spans);
  Task<std::shared_ptr<const tmpl::Base>> base_for(std::shared_ptr<Sandbox> sandbox, CreateRequest request, Spans& spans);
  Task<Machine> paused_machine(std::shared_ptr<Sandbox> sandbox, std::shared_ptr<const tmpl::Base> base, bool pooled, Pools::Slot& slot,
                               Spans& spans);
  Task<> start(std::shared_ptr<Sandbox> sandbox, bool loaded, Spans& spans);
  asio::awaitable<void> undo(std::shared_ptr<Sandbox> sandbox);
  asio::awaitable<void> on_vmm_gone(std::shared_ptr<Sandbox> sandbox, std::string vm);
  Task<> tear_down(std::shared_ptr<Sandbox> sandbox, Spans& spans);
  Task<> store(const SandboxRecord& record);
  void own(const std::shared_ptr<Sandbox>& sandbox, Machine machine);
  void forget(const std::shared_ptr<Sandbox>& sandbox);
  void remember_deleted(const std::string& id);

  static Identity identity_of(const SandboxRecord& record);
  // activate() as its record says; what that has told its guest is not told again.
  Task<> go_on(std::shared_ptr<Sandbox> sandbox, Spans& spans);
  // Its guest was told that it was loaded, and its record on the disk does not say so yet: that follows a little later, when nobody waits
  // for this disk.
  void told(const std::shared_ptr<Sandbox>& sandbox);
  asio::awaitable<void> store_later(std::weak_ptr<Sandbox> weak);

  asio::any_io_executor executor_;
  Parts parts_;
  std::size_t most_;
  std::map<std::string, std::shared_ptr<Sandbox>, std::less<>> table_;
  // Ids that were deleted here lately: a create that arrives behind its delete must not bring the sandbox back.
  std::set<std::string, std::less<>> deleted_;
  std::deque<std::string> deleted_order_;
  std::uint64_t forgotten_ = 0;
  std::size_t busy_ = 0;
  Signal idle_;
  // For what takes as long as data is large: records are written, and creates go on, while somebody's disk is stored or read.
  BlockingPool storing_{4}, checking_{1};
};

}  // namespace space::node
