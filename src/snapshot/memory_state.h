// The memory of a checkpoint: taking it from a VM, and putting it into a new one. In three steps, so that the guest stands still
// only for the first:
//
//   capture()       VM stopped: copies the dirty pages aside (a memory file, or an unnamed file of the store when they are many)
//   store_memory()  VM runs again: leaves out what did not change, writes the rest as one layer, gives the new complete map
//   load_memory()   a new VM on the same base, waiting: writes the map's pages into it, before its device state is loaded
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "snapshot/blob_store.h"
#include "snapshot/dirty_pages.h"
#include "snapshot/guest_memory.h"
#include "snapshot/page_layer.h"
#include "snapshot/page_map.h"

namespace space::snapshot {

struct MemoryState {
  explicit MemoryState(std::uint64_t bytes) : map(bytes / kPageBytes) {}
  std::vector<LayerRef> layers;  // only those that the map uses
  PageMap map;                   // of the guest's memory, in pages
};

struct CapturedPages {
  DirtySet dirty;
  Fd file;  // the pages of dirty.ranges one after another
};

struct StoredMemory {
  MemoryState state;
  std::uint64_t changed_pages = 0;  // whose content differs from the parent's
  std::uint64_t stored_bytes = 0;   // of the new layer; 0 when nothing had to be stored
};

// Copies the pages of `dirty` out of a stopped VM. insufficient_storage/… when there is no room: the VM can go on.
// `spool` is a folder for pages beyond 256 MiB; nothing with a name appears there.
Result<CapturedPages> capture(const GuestMemory& memory, DirtySet dirty, const std::string& spool);

// `base`: the sealed memory image that the VM was loaded on. `parent`: the state that the VM had at its last checkpoint or load;
// none for a VM that was loaded from its base. Every blob that the new state names is under `lease` when this returns.
Result<StoredMemory> store_memory(BlobStore& store, Lease& lease, const CapturedPages& pages, const Fd& base, const MemoryState* parent);

// Writes every page that differs from the base. All of it is checked: corrupt/layer_damaged, blob_missing, blob_truncated.
// When it fails the VM must not run.
Result<> load_memory(BlobStore& store, const std::string& tenant, const MemoryState& state, const GuestMemory& into);

}  // namespace space::snapshot
