// Which pages of a running VM may differ from its last checkpoint. Two sources, never mixed for one VM: marks of the write tracker
// look like swapped pages to the full scan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "snapshot/guest_memory.h"

namespace space::snapshot {

struct DirtySet {
  std::vector<PageRange> ranges;  // sorted; a superset of what was written
  // True: every page outside `ranges` has the base's content. False: every page outside has the content of the last checkpoint.
  bool since_load = true;
};

// Belongs to one VM. Calls with the VM stopped; one thread at a time; they take the time of a scan (under 1 ms tracked, tens of ms
// for a full scan of 256 MiB).
class DirtyPages {
 public:
  virtual ~DirtyPages() = default;
  // What was written since the last `confirm`. Asking again without it gives the same pages and those written meanwhile, so that
  // a checkpoint that failed loses nothing.
  virtual Result<DirtySet> take() = 0;
  virtual void confirm() = 0;  // the checkpoint made of the last take() is durable
};

// A full scan: a page that is present or swapped and not file-mapped was written by this VM since its load
// (Documentation/admin-guide/mm/pagemap.rst, bit 61). `memory` outlives it.
std::unique_ptr<DirtyPages> scan_pagemap(const GuestMemory& memory);

// Write tracking (Linux 6.7): `userfault` was made by the VMM itself and handed over; it is registered for the guest's memory: the VM
// waits for its load. What `image` (may be null), which it maps privately, has data for is protected at once, because a look at it
// would count as a write; the rest is not, so that the scan of a large guest meets page tables only where something was ever touched.
// Pages that load_memory writes count as written; take() and confirm() between load_memory and the load of the device state make
// them the starting point. unsupported/write_tracking where the kernel cannot: then scan_pagemap. `memory` outlives it.
Result<std::unique_ptr<DirtyPages>> track_writes(const GuestMemory& memory, Fd userfault, const Fd* image);

// What a VM gets: the tracker when a userfaultfd waits on `link` (wire::VmmProcess::userfault) and the kernel can, else the scan. The
// VM has been spawned and not loaded. Waits a second at most.
std::unique_ptr<DirtyPages> watch_writes(const GuestMemory& memory, const Fd& link, const Fd* image);

}  // namespace space::snapshot
