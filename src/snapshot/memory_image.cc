#include "snapshot/memory_image.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/digest.h"
#include "base/file.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U  // Linux 6.3
#endif

namespace space::snapshot {
namespace {

constexpr std::size_t kImageStep = 1 << 20;

bool is_zero(std::span<const std::byte> page) {
  return page[0] == std::byte{0} && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0;
}

std::array<std::byte, 8> little_endian(std::uint64_t number) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  return bytes;
}

// Goes over the data of `from` and writes each run of non-zero pages to the same place of `to`.
Result<MemoryImage> copy_pages(const Fd& from, std::uint64_t bytes, const Fd& to) {
  MemoryImage image{bytes, 0, {}};
  Sha256Stream hash;
  std::vector<std::byte> buffer(kImageStep);
  const auto end = static_cast<off_t>(bytes);
  for (off_t at = 0; at < end;) {
    const off_t data = ::lseek(from.get(), at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    if (data < 0) return fail_errno(errno, "find data in a memory image");
    off_t hole = ::lseek(from.get(), data, SEEK_HOLE);
    if (hole < 0) return fail_errno(errno, "find holes in a memory image");
    hole = std::min(hole, end);
    for (at = data / static_cast<off_t>(kPageBytes) * static_cast<off_t>(kPageBytes); at < hole;) {
      const auto start = static_cast<std::uint64_t>(at);
      const std::size_t length = std::min<std::uint64_t>(kImageStep, bytes - start);
      const std::span<std::byte> chunk(buffer.data(), length);
      TRY_VOID(pread_all(from, chunk, start));
      std::size_t run = 0;  // where the current run of non-zero pages began
      for (std::size_t offset = 0; offset < length; offset += kPageBytes) {
        const auto page = chunk.subspan(offset, kPageBytes);
        if (is_zero(page)) {
          TRY_VOID(pwrite_all(to, chunk.subspan(run, offset - run), start + run));
          run = offset + kPageBytes;
          continue;
        }
        hash.add(little_endian(start / kPageBytes + offset / kPageBytes));
        hash.add(page);
        ++image.pages;
      }
      TRY_VOID(pwrite_all(to, chunk.subspan(run), start + run));
      at += static_cast<off_t>(length);
    }
  }
  image.digest = digest_name(hash.finish());
  return image;
}

tl::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorKind::corrupt, "memory_image_corrupt", fmt::format("a stored memory image is damaged: {}", what),
              "delete the base; it is made again");
}

}  // namespace

Result<Fd> new_guest_memory(std::uint64_t bytes) {
  if (bytes == 0 || bytes % kPageBytes != 0)
    return fail(ErrorKind::invalid_argument, "invalid_memory_size", "guest memory is a whole number of pages");
  Fd fd(::memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = Fd(::memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "make a memory file");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return fail_errno(errno, "size a memory file");
  // The VMM has an own uid and opens it anew through its /proc. What it may do with it then is for the seals to say.
  if (::fchmod(fd.get(), 0666) != 0) return fail_errno(errno, "fchmod a memory file");
  return fd;
}

Result<MemoryImage> store_memory_image(const Fd& memory, std::uint64_t bytes, const Fd& into) {
  if (::ftruncate(into.get(), static_cast<off_t>(bytes)) != 0) return fail_errno(errno, "size a memory image");
  TRY(MemoryImage image, copy_pages(memory, bytes, into));
  if (::fdatasync(into.get()) != 0) return fail_errno(errno, "sync a memory image");
  return image;
}

Result<Fd> load_memory_image(const Fd& file, const MemoryImage& expected) {
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return fail_errno(errno, "fstat");
  if (static_cast<std::uint64_t>(st.st_size) != expected.bytes) return corrupt("its size is another one");
  TRY(Fd memory, new_guest_memory(expected.bytes));
  TRY(const MemoryImage found, copy_pages(file, expected.bytes, memory));
  if (found.pages != expected.pages || found.digest != expected.digest) return corrupt("its digest is another one");
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    return fail_errno(errno, "seal a memory file");
  return memory;
}

}  // namespace space::snapshot
