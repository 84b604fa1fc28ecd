// What is kept of sandboxes beside their own folders: checkpoints and what suspended ones come back from, in the blob store. This
// is the node's view of src/snapshot; it blocks, so it is used on the pool, from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node/machine.h"
#include "node/record.h"
#include "snapshot/blob_files.h"
#include "snapshot/manifest.h"

namespace space::node {

// A checkpoint of a sandbox, opened.
struct Checkpoint {
  snapshot::Manifest manifest;
  SandboxRecord record;  // of the sandbox as it was
};

class Vault {
 public:
  // `fetched`: the folder for copies of disks that a store elsewhere has; this object's alone, and made when it is first needed.
  Vault(std::unique_ptr<snapshot::BlobStore> store, snapshot::ManifestKey key, snapshot::FreezeFile freeze, std::filesystem::path fetched)
      : store_(std::move(store)), key_(std::move(key)), freeze_(std::move(freeze)), files_(*store_, std::move(fetched), kMostFetched) {}

  struct Order {
    snapshot::CheckpointKind kind = snapshot::CheckpointKind::checkpoint;
    std::string id;  // of the manifest to be
    std::string name;
    bool automatic = false;
    SandboxRecord record;  // as the sandbox is to be found again; its layers are the frozen part of the disk
    std::string vmm_build;
    std::vector<std::filesystem::path> disks;             // generations above the layers that are to be frozen now, bottom to top
    const Fd* memory_base = nullptr;                      // the image that the VM maps, nullptr for nothing; outlives the call
    std::shared_ptr<const snapshot::MemoryState> parent;  // the VM's memory at its last checkpoint or load
    std::string gateway_state;                            // Machines::gateway_state; for publish() alone
    std::int64_t now_ms = 0;
  };
  struct Kept {
    std::shared_ptr<const snapshot::MemoryState> memory;
    std::vector<snapshot::BlobRef> layers;  // of the record and the disks frozen now
    std::uint64_t own_bytes = 0;
    std::unique_ptr<snapshot::Lease> lease;  // on all of it
  };
  // A checkpoint in the making. What it stands on is in the store, under its lease, and perhaps not on the disk yet.
  struct Draft {
    Kept kept;
    snapshot::Manifest manifest;
  };
  // Stores a capture and freezes the disks.
  Result<Draft> gather(const Order& order, const Capture& capture);
  // Publishes the manifest: durable with all that it names when this returns. On an error there is no manifest.
  Result<Kept> publish(const Order& order, Draft draft);
  // Both, of the disk alone; `kept.memory` stays empty, and the lease is on the disk.
  Result<Kept> keep_disk(const Order& order);
  // The same without a manifest: what an attempt before this one left unfrozen.
  Result<Kept> keep_generations(const Order& order);
  // One more generation for the lease's holder: durable, and written by nobody any more.
  Result<snapshot::BlobRef> keep_generation(snapshot::Lease& lease, const Fd& file);
  // Asked before anything is begun: storage_quota or store_low_water when nothing more would be taken.
  Result<> room(const std::string& tenant, std::uint64_t bytes) { return store_->room(tenant, bytes + kLeastRoom); }

  // Every byte of its manifest is checked. not_found/checkpoint_unknown, corrupt/manifest_…
  Result<Checkpoint> open(const std::string& tenant, const std::string& id);
  // Those that can be read, oldest first: what they are and which blobs they name, without page maps and settings. Each manifest is
  // read and checked once, however often this is asked.
  Result<std::vector<std::shared_ptr<const Checkpoint>>> list(const std::string& tenant);
  Result<std::vector<std::shared_ptr<const Checkpoint>>> everything();  // of every tenant; fails when one cannot be read
  Result<std::vector<std::string>> tenants() { return store_->tenants(); }
  Result<> forget(const std::string& tenant, const std::string& id);
  // Read-only; fetched first where the store is elsewhere.
  Result<std::vector<Fd>> layers(const std::string& tenant, const std::vector<snapshot::BlobRef>& layers);
  // Reads layers of a disk against their names, each once in the life of this process and not those that it kept itself: a bit that
  // turned on the way is found before a guest works on it, or a merge gives it a new name. Some 0.7 s a GB. blob_corrupt, blob_truncated.
  Result<> check_layers(const std::string& tenant, const std::vector<snapshot::BlobRef>& layers);
  Result<SavedState> saved(const std::string& tenant, const snapshot::Manifest& manifest);
  Result<std::string> gateway_state(const std::string& tenant, const snapshot::Manifest& manifest);  // "" when it has none
  // Keeps the blobs that a live sandbox stands on, whatever becomes of the checkpoints that named them.
  Result<std::unique_ptr<snapshot::Lease>> hold(const std::string& tenant, const std::vector<snapshot::BlobRef>& layers,
                                                const snapshot::MemoryState* memory);

  // Removes files of a folder that are generations of a disk and not in `keep`. They may be frozen, and stay so under the store's
  // name. The VM that wrote them is gone.
  Result<> tidy(const std::filesystem::path& folder, const std::vector<std::string>& keep);
  // The same while the VM may still hold them open: only those that the store has let go of, and that are not frozen any more.
  Result<> tidy_thawed(const std::filesystem::path& folder, const std::vector<std::string>& keep);

  // Removes blobs that no manifest names and no lease holds, of every tenant. What goes wrong with one tenant is logged.
  void collect();
  void garbage_left() { garbage_ = true; }
  bool has_grown() { return grown_.exchange(false); }      // something was kept since the last question
  std::uint64_t forgotten() const { return forgotten_; }   // how many checkpoints were
  bool has_garbage() { return garbage_.exchange(false); }  // something was forgotten since the last question

 private:
  static constexpr std::uint64_t kLeastRoom = 1 << 20;
  static constexpr std::uint64_t kMostFetched = std::uint64_t{16} << 30;  // bytes of copies that nobody may need any more
  Result<Fd> open_to_freeze(const std::filesystem::path& path);
  void remember_sound(const std::string& tenant, const snapshot::BlobRef& layer);
  Result<> freeze(const Order& order, snapshot::Lease& lease, Kept& kept);  // layers and own_bytes of `kept`
  Result<std::shared_ptr<const Checkpoint>> outline(const std::string& tenant, const std::string& id);
  std::unique_ptr<snapshot::BlobStore> store_;
  snapshot::ManifestKey key_;
  snapshot::FreezeFile freeze_;
  snapshot::BlobFiles files_;
  std::atomic<bool> grown_{true};
  std::atomic<std::uint64_t> forgotten_{0};
  std::atomic<bool> garbage_{true};  // an earlier process may have left some
  std::mutex mutex_;
  std::map<std::string, std::map<std::string, std::shared_ptr<const Checkpoint>>> outlines_;  // by tenant and id
  std::mutex checking_;                                  // held while layers are read, so that several forks read them once
  std::set<std::pair<std::string, std::string>> sound_;  // tenant and digest of layers that were found right, or written, by this process
};

}  // namespace space::node
