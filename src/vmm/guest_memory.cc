#include "vmm/guest_memory.h"

#include <charconv>
#include <optional>

#include "base/file.h"

namespace space::vmm {
namespace {

constexpr std::size_t kMostMaps = 4 << 20;  // bytes of text; a VMM has a few hundred lines of a hundred bytes
constexpr std::string_view kFile = "/memfd:guest";
constexpr std::uint64_t kPage = 4096;

std::optional<std::uint64_t> hex(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string_view word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::string_view found = rest.substr(0, rest.find(' '));
  rest.remove_prefix(found.size());
  return found;
}

struct Line {
  std::uint64_t start = 0, end = 0, offset = 0;
  bool writable = false, ours = false;
};

// "7f0000000000-7f0020000000 rw-p 00000000 00:01 42    /memfd:guest (deleted)"
std::optional<Line> parse(std::string_view text) {
  const std::string_view range = word(text), rights = word(text), offset = word(text);
  (void)word(text);  // device
  (void)word(text);  // inode
  const std::string_view name = word(text);
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto start = hex(range.substr(0, dash)), end = hex(range.substr(dash + 1)), at = hex(offset);
  if (!start || !end || !at || *start >= *end || *start % kPage != 0 || *end % kPage != 0) return std::nullopt;
  return Line{*start, *end, *at, rights == "rw-p", name == kFile};
}

tl::unexpected<Error> not_found(std::string_view why) {
  return fail(ErrorKind::unavailable, "guest_memory_not_found", "the guest's memory is not found in its VMM: " + std::string(why), "delete the sandbox; its VMM cannot be trusted");
}

}  // namespace

Result<AddressRange> find_guest_memory(std::string_view maps) {
  AddressRange found;
  while (!maps.empty()) {
    const std::size_t end = maps.find('\n');
    const auto line = parse(maps.substr(0, end));
    maps.remove_prefix(end == std::string_view::npos ? maps.size() : end + 1);
    if (!line) return not_found("a line of its maps cannot be read");
    if (!line->ours || !line->writable) continue;
    if (found.bytes == 0) {
      if (line->offset != 0) return not_found("its beginning is missing");
      found = {line->start, line->end - line->start};
    } else if (line->start == found.address + found.bytes && line->offset == found.bytes) {
      found.bytes += line->end - line->start;  // one map, cut by different properties of its parts
    } else {
      return not_found("it is mapped in several places");
    }
  }
  if (found.bytes == 0) return not_found("there is no such map");
  return found;
}

Result<GuestMemory> guest_memory(wire::MemoryFiles files) {
  TRY(const std::string maps, read_fd(files.maps, kMostMaps));
  TRY(const AddressRange range, find_guest_memory(maps));
  return GuestMemory{std::move(files.memory), std::move(files.pagemap), range.address, range.bytes};
}

}  // namespace space::vmm
