// The uids of VMMs: one each, never shared while anything of it remains.
#pragma once

#include <set>
#include <sys/types.h>

#include "base/fd.h"
#include "base/result.h"

namespace space::warden {

// A block of uids that this warden alone gives out. Another server on this host with the same first uid gets the next block: the
// claim is an abstract Unix socket, which the kernel lets go with the process.
class UidSlots {
 public:
  static constexpr uid_t kBlock = 4096;
  static constexpr int kBlocks = 16;

  static Result<UidSlots> claim(uid_t first);

  // The next free uid, the one that was free for longest first. `too_many_vms` when there is none.
  Result<uid_t> take();
  void adopt(uid_t uid);      // in use by a VM that was found
  void give_back(uid_t uid);  // only when no process of it exists
  uid_t first() const { return first_; }

 private:
  UidSlots(Fd claim, uid_t first) : claim_(std::move(claim)), first_(first) {}
  Fd claim_;
  uid_t first_ = 0;
  uid_t next_ = 0;          // offset where the search goes on
  std::set<uid_t> in_use_;  // also of processes that were there at the start and belong to nobody known
};

}  // namespace space::warden
