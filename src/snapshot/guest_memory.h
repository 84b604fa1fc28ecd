// A VM's guest memory seen from outside, through descriptors of the VMM's /proc files that the warden opened (open_memory). The VMM
// may be hostile: what is read is the VM's own data, and the map is parsed strictly; a lie in it harms that VM alone.
// Calls block; any thread, one at a time. The VM stands still while pages are read or written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "snapshot/memory_image.h"

namespace space::snapshot {

// Pages [first, first + count) of the guest's memory; numbers, not addresses.
struct PageRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool operator==(const PageRange&) const = default;
};

std::uint64_t count_pages(std::span<const PageRange> ranges);
// Sorted, without overlaps and without neighbours that touch.
std::vector<PageRange> merge_ranges(std::vector<PageRange> a, std::span<const PageRange> b);

class GuestMemory {
 public:
  // `maps`, `mem` and `pagemap` of one process; `bytes` is the size of the guest's memory. The map of the file that
  // new_guest_memory made is looked for. unavailable/guest_memory_not_found when it is not there in one piece.
  static Result<GuestMemory> find(Fd mem, Fd pagemap, const Fd& maps, std::uint64_t bytes);

  std::uint64_t pages() const { return bytes_ / kPageBytes; }
  std::uint64_t address() const { return address_; }  // in the VMM's address space
  const Fd& pagemap() const { return pagemap_; }
  Result<> read(std::uint64_t first_page, std::span<std::byte> out) const;
  Result<> write(std::uint64_t first_page, std::span<const std::byte> bytes) const;

 private:
  Fd mem_, pagemap_;
  std::uint64_t address_ = 0, bytes_ = 0;
};

// The start of `bytes` of guest memory in the text of /proc/PID/maps (proc(5)), or nothing.
std::optional<std::uint64_t> find_guest_memory(std::string_view maps, std::uint64_t bytes);

}  // namespace space::snapshot
