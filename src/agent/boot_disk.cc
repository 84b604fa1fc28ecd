// A sandbox's disk may be larger than the template's filesystem: the kernel grows it while it is mounted
// (Documentation/filesystems/ext4; EXT4_IOC_RESIZE_FS takes the new size in blocks), which needs no tool of the template.
#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "agent/boot.h"
#include "base/file.h"

namespace space::agent {
namespace {

// From fs/ext4/ext4.h; no header of user space has it.
constexpr unsigned long kResizeFs = _IOW('f', 16, std::uint64_t);

struct SuperblockPart {  // at byte 1024 of the device, "Super Block" of the ext4 document
  std::uint64_t blocks;
  std::uint64_t block_size;
};

Result<SuperblockPart> read_superblock(const Fd& device) {
  std::array<std::byte, 1024> bytes;
  TRY_VOID(pread_all(device, bytes, 1024));
  const auto number = [&](std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  const bool wide = (number(0x60) & 0x80) != 0;  // incompatible feature 64bit
  const std::uint32_t shift = number(0x18);
  if (shift > 6) return fail(ErrorKind::corrupt, "bad_superblock", "the root filesystem has an unknown block size");
  return SuperblockPart{number(0x04) | (wide ? static_cast<std::uint64_t>(number(0x150)) << 32 : 0), 1024ULL << shift};
}

}  // namespace

Result<> grow_root(const char* path) {
  TRY(const Fd device, open_file(path, O_RDONLY));
  std::uint64_t size = 0;
  if (::ioctl(device.get(), BLKGETSIZE64, &size) != 0) return fail_errno(errno, "size of the disk");
  TRY(const SuperblockPart now, read_superblock(device));
  const std::uint64_t blocks = size / now.block_size;
  // A few blocks more are no block group: nothing to gain.
  if (blocks <= now.blocks + 1024) return {};
  TRY(const Fd root, open_file("/", O_RDONLY | O_DIRECTORY));
  if (::ioctl(root.get(), kResizeFs, &blocks) != 0) return fail_errno(errno, "grow the root filesystem");
  return {};
}

}  // namespace space::agent
