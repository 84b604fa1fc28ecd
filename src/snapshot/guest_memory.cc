#include "snapshot/guest_memory.h"

#include <algorithm>
#include <charconv>

#include "base/file.h"

namespace space::snapshot {
namespace {

constexpr std::size_t kMapsLimit = 4 << 20;
constexpr std::string_view kName = "/memfd:guest (deleted)";  // of new_guest_memory

// Takes a number in hex that `end` follows.
bool take_hex(std::string_view& line, std::uint64_t& number, char end) {
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number, 16);
  if (error != std::errc{} || stop == line.data() + line.size() || *stop != end) return false;
  line.remove_prefix(static_cast<std::size_t>(stop - line.data()) + 1);
  return true;
}

}  // namespace

std::uint64_t count_pages(std::span<const PageRange> ranges) {
  std::uint64_t pages = 0;
  for (const PageRange& range : ranges) pages += range.count;
  return pages;
}

std::vector<PageRange> merge_ranges(std::vector<PageRange> a, std::span<const PageRange> b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const PageRange& x, const PageRange& y) { return x.first < y.first; });
  std::vector<PageRange> out;
  for (const PageRange& range : a) {
    if (range.count == 0) continue;
    if (!out.empty() && range.first <= out.back().first + out.back().count) {
      out.back().count = std::max(out.back().first + out.back().count, range.first + range.count) - out.back().first;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

// A line: "start-end perms offset device inode   path". The map may be cut into neighbours with other protection bits, whose offsets
// in the file then follow each other.
std::optional<std::uint64_t> find_guest_memory(std::string_view maps, std::uint64_t bytes) {
  std::uint64_t begin = 0, length = 0;
  while (!maps.empty()) {
    const std::size_t end_of_line = std::min(maps.find('\n'), maps.size());
    std::string_view line = maps.substr(0, end_of_line);
    maps.remove_prefix(std::min(end_of_line + 1, maps.size()));
    const bool ours = line.ends_with(kName);
    std::uint64_t start = 0, end = 0, offset = 0;
    if (!ours || !take_hex(line, start, '-') || !take_hex(line, end, ' ') || line.size() < 5) continue;
    line.remove_prefix(5);
    if (!take_hex(line, offset, ' ') || end <= start) continue;
    if (offset == 0) {
      begin = start;
      length = end - start;
    } else if (length != 0 && start == begin + length && offset == length) {
      length += end - start;
    } else {
      continue;
    }
    if (length == bytes) return begin;
  }
  return std::nullopt;
}

Result<GuestMemory> GuestMemory::find(Fd mem, Fd pagemap, const Fd& maps, std::uint64_t bytes) {
  if (bytes == 0 || bytes % kPageBytes != 0)
    return fail(ErrorKind::invalid_argument, "invalid_memory_size", "guest memory is a whole number of pages");
  TRY(const std::string text, read_fd(maps, kMapsLimit));
  const auto address = find_guest_memory(text, bytes);
  if (!address)
    return fail(ErrorKind::unavailable, "guest_memory_not_found", "the VMM does not have its guest's memory mapped in one piece",
                "the VM may have ended; see its log");
  GuestMemory memory;
  memory.mem_ = std::move(mem);
  memory.pagemap_ = std::move(pagemap);
  memory.address_ = *address;
  memory.bytes_ = bytes;
  return memory;
}

Result<> GuestMemory::read(std::uint64_t first_page, std::span<std::byte> out) const {
  if (first_page > pages() || out.size() > bytes_ - first_page * kPageBytes)
    return fail(ErrorKind::invalid_argument, "outside_guest_memory", "a page outside the guest's memory was asked for");
  return pread_all(mem_, out, address_ + first_page * kPageBytes);
}

Result<> GuestMemory::write(std::uint64_t first_page, std::span<const std::byte> bytes) const {
  if (first_page > pages() || bytes.size() > bytes_ - first_page * kPageBytes)
    return fail(ErrorKind::invalid_argument, "outside_guest_memory", "a page outside the guest's memory was to be written");
  return pwrite_all(mem_, bytes, address_ + first_page * kPageBytes);
}

}  // namespace space::snapshot
