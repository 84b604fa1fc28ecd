#include "snapshot/dirty_pages.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/unix_socket.h"

namespace space::snapshot {
namespace {

// Kernel headers of Debian 12 (6.1) know neither; the values are the kernel's stable interface (include/uapi/linux/fs.h,
// include/uapi/linux/userfaultfd.h of Linux 6.7).
struct pm_scan_arg {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask, category_anyof_mask,
      return_mask;
};
struct page_region {
  std::uint64_t start, end, categories;
};
constexpr unsigned long kPagemapScan = _IOWR('f', 16, pm_scan_arg);
constexpr std::uint64_t kScanWpMatching = 1, kScanCheckWpAsync = 2, kPageIsWritten = 1 << 1, kPageIsPresent = 1 << 3,
                        kPageIsSwapped = 1 << 4;
constexpr std::uint64_t kFeatureWpUnpopulated = 1 << 13, kFeatureWpAsync = 1 << 15;

class PagemapScan : public DirtyPages {
 public:
  explicit PagemapScan(const GuestMemory& memory) : memory_(memory) {}

  Result<DirtySet> take() override {
    constexpr std::uint64_t kPresent = 1ULL << 63, kSwapped = 1ULL << 62, kShared = 1ULL << 61;
    DirtySet set;
    std::array<std::uint64_t, 8192> entries;
    for (std::uint64_t page = 0; page < memory_.pages();) {
      const std::uint64_t count = std::min<std::uint64_t>(entries.size(), memory_.pages() - page);
      TRY_VOID(pread_all(memory_.pagemap(), std::as_writable_bytes(std::span(entries).first(count)),
                         (memory_.address() / kPageBytes + page) * 8));
      for (std::uint64_t i = 0; i < count; ++i) {
        if ((entries[i] & (kPresent | kSwapped)) == 0 || (entries[i] & kShared) != 0) continue;
        if (!set.ranges.empty() && set.ranges.back().first + set.ranges.back().count == page + i) {
          ++set.ranges.back().count;
        } else {
          set.ranges.push_back({page + i, 1});
        }
      }
      page += count;
    }
    return set;
  }
  void confirm() override {}

 private:
  const GuestMemory& memory_;
};

// The parts of an image that have data, in whole page tables: finer steps would save nothing.
std::vector<PageRange> data_ranges(const Fd& image, std::uint64_t pages) {
  constexpr std::uint64_t kTable = 512;  // pages that one page table maps
  std::vector<PageRange> found;
  const auto end = static_cast<off_t>(pages * kPageBytes);
  for (off_t at = 0; at < end;) {
    const off_t data = ::lseek(image.get(), at, SEEK_DATA), hole = data < 0 ? -1 : ::lseek(image.get(), data, SEEK_HOLE);
    if (hole < 0) break;  // ENXIO: no data from here on
    const std::uint64_t first = static_cast<std::uint64_t>(data) / kPageBytes / kTable * kTable;
    const std::uint64_t last = std::min((static_cast<std::uint64_t>(hole) / kPageBytes + kTable) / kTable * kTable, pages);
    if (!found.empty() && found.back().first + found.back().count >= first)
      found.back().count = last - found.back().first;
    else if (first < last)
      found.push_back({first, last - first});
    at = static_cast<off_t>(last * kPageBytes);
  }
  return found;
}

class WriteTracker : public DirtyPages {
 public:
  WriteTracker(const GuestMemory& memory, Fd userfault) : memory_(memory), userfault_(std::move(userfault)) {}

  Result<> arm(const Fd* image) {
    const auto refused = [](const char* what) {
      return fail(ErrorKind::unsupported, "write_tracking",
                  std::string("write tracking does not work here: ") + what + ": " + std::strerror(errno),
                  "Linux 6.7 or newer has it; checkpoints work without, only slower");
    };
    uffdio_api api{UFFD_API, kFeatureWpAsync | kFeatureWpUnpopulated, 0};
    if (::ioctl(userfault_.get(), UFFDIO_API, &api) != 0) return refused("UFFDIO_API");
    uffdio_register range{{memory_.address(), memory_.pages() * kPageBytes}, UFFDIO_REGISTER_MODE_WP, 0};
    if (::ioctl(userfault_.get(), UFFDIO_REGISTER, &range) != 0) return refused("UFFDIO_REGISTER");
    for (const PageRange& part : image ? data_ranges(*image, memory_.pages()) : std::vector<PageRange>{}) {
      uffdio_writeprotect protect{{memory_.address() + part.first * kPageBytes, part.count * kPageBytes}, UFFDIO_WRITEPROTECT_MODE_WP};
      if (::ioctl(userfault_.get(), UFFDIO_WRITEPROTECT, &protect) != 0) return refused("UFFDIO_WRITEPROTECT");
    }
    return {};
  }

  // PAGEMAP_SCAN finds the written pages and protects them again in one step; what it found is kept until confirm().
  Result<DirtySet> take() override {
    const std::uint64_t begin = memory_.address(), end = begin + memory_.pages() * kPageBytes;
    std::vector<page_region> regions(4096);
    std::vector<PageRange> found;
    for (std::uint64_t at = begin; at < end;) {
      pm_scan_arg arg{};
      arg.size = sizeof arg;
      arg.flags = kScanWpMatching | kScanCheckWpAsync;
      arg.start = at;
      arg.end = end;
      arg.vec = reinterpret_cast<std::uint64_t>(regions.data());
      arg.vec_len = regions.size();
      arg.category_mask = kPageIsWritten;
      arg.category_anyof_mask = kPageIsPresent | kPageIsSwapped;  // where nothing was ever touched and protected, all counts as written
      arg.return_mask = kPageIsWritten;
      const int n = ::ioctl(memory_.pagemap().get(), kPagemapScan, &arg);
      const int error = errno;
      for (int i = 0; i < n; ++i)
        found.push_back({(regions[i].start - begin) / kPageBytes, (regions[i].end - regions[i].start) / kPageBytes});
      if (n < 0) {
        pending_ = merge_ranges(std::move(pending_), found);  // those are protected again: not to be forgotten
        return fail_errno(error, "scan for written pages");
      }
      if (arg.walk_end <= at) break;
      at = arg.walk_end;
    }
    pending_ = merge_ranges(std::move(pending_), found);
    return DirtySet{pending_, false};
  }
  void confirm() override { pending_.clear(); }

 private:
  const GuestMemory& memory_;
  Fd userfault_;
  std::vector<PageRange> pending_;
};

}  // namespace

std::unique_ptr<DirtyPages> scan_pagemap(const GuestMemory& memory) { return std::make_unique<PagemapScan>(memory); }

Result<std::unique_ptr<DirtyPages>> track_writes(const GuestMemory& memory, Fd userfault, const Fd* image) {
  auto tracker = std::make_unique<WriteTracker>(memory, std::move(userfault));
  TRY_VOID(tracker->arm(image));
  return std::unique_ptr<DirtyPages>(std::move(tracker));
}

std::unique_ptr<DirtyPages> watch_writes(const GuestMemory& memory, const Fd& link, const Fd* image) {
  if (!link) return scan_pagemap(memory);
  auto tracked = [&]() -> Result<std::unique_ptr<DirtyPages>> {
    pollfd waiting{link.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 1'000) != 1) return fail(ErrorKind::deadline_exceeded, "write_tracking", "no userfaultfd came");
    TRY(Packet packet, receive_packet(link, 16));
    if (packet.fds.size() != 1) return fail(ErrorKind::unsupported, "write_tracking", "the kernel gave the VMM no userfaultfd");
    char target[64] = {};
    (void)!::readlink(("/proc/self/fd/" + std::to_string(packet.fds[0].get())).c_str(), target, sizeof target - 1);
    if (std::strcmp(target, "anon_inode:[userfaultfd]") != 0)
      return fail(ErrorKind::corrupt, "write_tracking", "what came is no userfaultfd");
    return track_writes(memory, std::move(packet.fds[0]), image);
  }();
  if (tracked) return std::move(*tracked);
  log::warn("snapshot.no_write_tracking", {{"error", tracked.error()}});
  return scan_pagemap(memory);
}

}  // namespace space::snapshot
