#include "template/kernel.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "template/archive_reader.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kCompressedBytes = 128 << 20;
constexpr std::uint32_t kKernelBytes = 512 << 20;
constexpr std::size_t kLargestModule = 16 << 20;

tl::unexpected<Error> no_kernel(std::string_view what) {
  return fail(ErrorKind::unsupported, "template_kernel", fmt::format("the kernel package {}", what),
              "use Debian 12's linux-image-cloud-amd64 for amd64, as the machine's package sources have it");
}

std::uint32_t little_endian_32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

Result<> write_new(const fs::path& path, std::string_view content) {
  TRY(auto fd, open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0444));
  return write_all(fd, content);
}

}  // namespace

const std::vector<std::string>& guest_modules() {
  static const std::vector<std::string> modules = {"virtio_ring.ko",  "virtio.ko",     "virtio_mmio.ko", "virtio_blk.ko", "failover.ko",
                                                   "net_failover.ko", "virtio_net.ko", "virtio-rng.ko",  "fuse.ko"};
  return modules;
}

std::string guest_module_order() {
  std::string order;
  for (const auto& module : guest_modules()) order += module + "\n";
  return order;
}

Result<std::string> uncompressed_kernel(std::string_view image) {
  constexpr std::size_t kHeaderEnd = 0x250;
  if (image.size() < kHeaderEnd || image.substr(0x202, 4) != "HdrS") return no_kernel("holds a kernel without a boot header");
  if ((static_cast<unsigned char>(image[0x207]) << 8 | static_cast<unsigned char>(image[0x206])) < 0x208)
    return no_kernel("holds a kernel too old to name its payload");
  const std::uint64_t setup_sectors = std::max<unsigned>(static_cast<unsigned char>(image[0x1f1]), 1);
  const std::uint64_t begin = (setup_sectors + 1) * 512 + little_endian_32(image, 0x248);
  const std::uint64_t length = little_endian_32(image, 0x24c);
  if (length < 8 || begin > image.size() || length > image.size() - begin) return no_kernel("holds a kernel that is cut short");
  const auto payload = image.substr(begin, length);
  // The build appends the uncompressed size to every format that does not end with it by itself (gzip's trailer does).
  const auto size = little_endian_32(payload, payload.size() - 4);
  if (size > kKernelBytes) return no_kernel(fmt::format("holds a kernel of {} bytes", size));
  std::string elf;
  if (payload.starts_with("\x7f"
                          "ELF")) {
    elf = payload;
  } else {
    const bool gzip = payload.starts_with("\x1f\x8b");
    TRY(auto reader, ArchiveReader::open_bytes(gzip ? payload : payload.substr(0, payload.size() - 4), true));
    auto entry = reader.next();
    if (!entry || !*entry) return no_kernel("holds a kernel in a compression that is not known here");
    TRY(elf, reader.at_most(size));
    if (elf.size() != size) return no_kernel("holds a kernel that does not unpack to its size");
  }
  if (!elf.starts_with("\x7f"
                       "ELF"))
    return no_kernel("holds a kernel whose payload is no ELF image");
  return elf;
}

Result<> unpack_kernel_package(const fs::path& deb, const fs::path& into) {
  const Utf8Names names;
  TRY(auto package, ArchiveReader::open(deb));
  for (;;) {
    TRY(auto* const member, package.next());
    if (!member) return no_kernel("holds no data archive");
    if (std::string_view(archive_entry_pathname(member)).starts_with("data.tar")) break;
  }
  TRY(auto data, package.open_inner());
  TRY_VOID(make_directories(into / "modules", 0755));
  std::set<std::string> missing(guest_modules().begin(), guest_modules().end());
  bool kernel = false;
  for (;;) {
    TRY(auto* const entry, data.next());
    if (!entry) break;
    const char* const name = archive_entry_pathname(entry);
    if (!name || archive_entry_filetype(entry) != AE_IFREG) continue;
    const fs::path path(name);
    const auto file = path.filename().string();
    if (file.starts_with("vmlinuz-") && !kernel) {
      TRY(auto image, data.content(kCompressedBytes));
      TRY(auto elf, uncompressed_kernel(image));
      TRY_VOID(write_new(into / "vmlinux", elf));
      kernel = true;
    } else if (missing.erase(file) > 0) {
      TRY(auto module, data.content(kLargestModule));
      TRY_VOID(write_new(into / "modules" / file, module));
    }
  }
  if (!kernel) return no_kernel("holds no kernel image");
  if (!missing.empty()) return no_kernel(fmt::format("has no module {}", *missing.begin()));
  return write_new(into / "modules" / "order", guest_module_order());
}

}  // namespace space::tmpl
