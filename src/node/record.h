// What node knows of a sandbox durably: data/node/sandboxes/<id>/record.json beside its disk.
//
//   node/sandboxes/<id>/{record.json,disk.qcow2}   a sandbox; the folder appears by one rename with its record complete
//   node/sandboxes/<id>/disk-<id>                  a later generation of the disk (sandboxes_save.cc)
//   node/pool/<vm>/{disk.qcow2,record.json?}       a VM that is not a sandbox yet; everything here goes at a start
//   node/trash/<id>/…                              a delete under way; finished at a start
//   node/lock                                      held while a node runs on these folders
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/staged_file.h"
#include "node/spans.h"
#include "node/states.h"
#include "snapshot/blob_store.h"
#include "vmm/driver.h"

namespace space::node {

inline constexpr std::int64_t kSnapshotsKept = 20;
inline constexpr std::size_t kMostKept = 128 << 10;
inline constexpr std::size_t kMostVariables = 256, kMostVariableBytes = 128 << 10;  // of an environment; names and values together

// A volume of the same tenant, which is a sandbox too, and where its folder is in this one's tree of files.
struct VolumeMount {
  std::string volume, path;
  bool operator==(const VolumeMount&) const = default;
};

struct SandboxRecord {
  std::string id;
  std::string tenant;
  std::string template_reference;  // as asked for
  std::string template_digest;
  vmm::Size size;
  std::string vm;                    // the VM's id; differs from the sandbox's, since pooled VMs exist before
  std::string base_key;              // that its disk, and unless `booted` its memory, stand on
  std::string base_content;          // of that base (tmpl::Base::content); "": not known
  std::string vmm_build, state_key;  // of its VM, or of its saved state: what runs it, and what a state of it depends on; "": not known
  std::uint64_t epoch = 1;           // of event ids; raised by a load that goes back
  std::map<std::string, std::string> env;
  std::string hostname;
  std::string machine_id;
  SandboxState state = SandboxState::creating;
  std::string end_reason;
  std::string create_operation;  // the same PUT again is answered from here
  std::string last_operation;
  std::vector<Span> create_spans;
  std::int64_t created_ms = 0;
  // The disk, bottom to top: the base's own files, `layers` (frozen, in the store), `disks` (files in its folder; the last is written).
  std::vector<snapshot::BlobRef> layers;
  std::vector<std::string> disks{"disk.qcow2"};
  bool booted = false;          // started from its disk: its memory stands over nothing, not over the base's
  std::string saved;            // while suspended: the manifest in the store that it comes back from
  bool loaded = false;          // its VM was loaded, and its guest has not been told yet (Identity::loaded)
  bool unfrozen = false;        // paused or suspended while its users' processes ran (stand_still): nothing is forked from there
  std::string checkpoint;       // the last one that it was saved to, or made from; "" for none
  std::string origin;           // the checkpoint that it was made from; "" for none
  std::string lineage;          // the id of the first sandbox of its family; "" for itself
  std::uint64_t inherited = 0;  // of a fork: the agent's processes up to this number came with it
  std::uint64_t processes = 0;  // in a checkpoint: the largest number of a process at that time
  // Snapshots of its disk that are taken by themselves: after so many seconds with changes (0: none), and how many of them are kept.
  std::int64_t snapshot_every_s = 0;
  std::int64_t snapshot_keep = kSnapshotsKept;
  std::vector<VolumeMount> mounts;
  // What the control plane knows of it beside this (labels, limits, its API's options), as it gave it; opaque here. Only for the day when
  // its database is lost; not part of a checkpoint. "": nothing.
  std::string kept;
};

bool is_disk_name(std::string_view name);  // of a file with a generation of a sandbox's disk

inline std::uint64_t memory_bytes(const SandboxRecord& record) { return std::uint64_t{record.size.memory_mib} << 20; }

std::string encode_record(const SandboxRecord& record);
Result<SandboxRecord> decode_record(std::string_view text);  // strict: corrupt/record_unreadable
// Of an environment that something was added to: invalid_argument/invalid_field when it is more than one may have.
Result<> check_variables(const std::map<std::string, std::string>& env);

// The folders. All of it blocks: use from a pool. Ids are checked before they become part of a path.
class RecordStore {
 public:
  explicit RecordStore(std::filesystem::path root) : root_(std::move(root)) {}  // <data>/node

  // Makes the folders and takes the lock. A node before this one gets `patience` to leave; then conflict/node_already_running.
  Result<> open(std::chrono::milliseconds patience = std::chrono::seconds(5));
  Result<std::filesystem::path> make_pool_folder(const std::string& vm) const;
  Result<> remove_pool_folder(const std::string& vm) const;
  // Turns a VM's pool folder into the sandbox's own. Durable when it returns; on an error the sandbox does not exist. One that is too long
  // to be read again is not written, here and below: invalid_argument/record_too_large.
  Result<> publish(const SandboxRecord& record) const;
  Result<> update(const SandboxRecord& record) const;
  // The first half of an update, which is waiting for the disk; publish() of what it gives is the rest.
  Result<StagedFile> stage(const SandboxRecord& record) const;
  // A delete in two steps: after `discard` a start finishes it; after `purge` nothing is left. Both are idempotent.
  Result<> discard(const std::string& id) const;
  Result<> purge(const std::string& id) const;

  struct Found {
    std::string id;
    Result<SandboxRecord> record;
  };
  Result<std::vector<Found>> sandboxes() const;
  Result<std::vector<Found>> trash() const;
  Result<std::vector<std::string>> pool() const;  // VM ids

  // Of ids that were checked.
  std::filesystem::path folder(const std::string& id) const { return root_ / "sandboxes" / id; }
  std::filesystem::path trash_folder(const std::string& id) const { return root_ / "trash" / id; }
  std::filesystem::path pool_folder(const std::string& vm) const { return root_ / "pool" / vm; }
  std::filesystem::path spool() const { return root_ / "spool"; }  // for files without a name

 private:
  Result<std::vector<Found>> read_all(const char* folder) const;
  std::filesystem::path root_;
  Fd lock_;
};

}  // namespace space::node
