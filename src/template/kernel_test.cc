#include "template/kernel.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "template/test_archives.h"

namespace space::tmpl {
namespace {

std::string elf() {
  return "\x7f"
         "ELF" +
         std::string(100'000, 'k') + "end";
}
std::uint32_t size_of(const std::string& text) { return static_cast<std::uint32_t>(text.size()); }

TEST(KernelImageTest, EveryCompressionThatKernelsUse) {
  for (const int filter : {ARCHIVE_FILTER_NONE, ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD, ARCHIVE_FILTER_BZIP2}) {
    const auto payload = filter == ARCHIVE_FILTER_NONE ? elf() : compressed(elf(), filter);
    const auto kernel = uncompressed_kernel(test_bz_image(payload, size_of(elf())));
    ASSERT_TRUE(kernel) << filter << describe(kernel.error());
    EXPECT_TRUE(kernel->starts_with(elf())) << filter;
  }
}

TEST(KernelImageTest, Lz4AsTheKernelBuildWritesIt) {
  // The legacy frame (magic, then blocks of a length each) is what `lz4 -l` makes; one block of literals.
  const std::string text =
      "\x7f"
      "ELF and some text";
  std::string payload = {
      0x02, 0x21, 0x4c, 0x18, static_cast<char>(text.size() + 2), 0, 0, 0, static_cast<char>(0xf0), static_cast<char>(text.size() - 15)};
  const auto kernel = uncompressed_kernel(test_bz_image(payload + text, size_of(text)));
  ASSERT_TRUE(kernel) << describe(kernel.error());
  EXPECT_EQ(*kernel, text);
}

TEST(KernelImageTest, WhatIsNoKernelIsRefused) {
  auto cut = test_bz_image(compressed(elf(), ARCHIVE_FILTER_XZ), size_of(elf()));
  cut.resize(1100);
  const std::string cases[] = {"",
                               std::string(4096, '\0'),
                               cut,
                               test_bz_image("no compression known", 10),
                               test_bz_image(compressed("not an ELF", ARCHIVE_FILTER_GZIP), 10),
                               test_bz_image(compressed(elf(), ARCHIVE_FILTER_XZ), size_of(elf()) + 1),
                               test_bz_image(compressed(elf(), ARCHIVE_FILTER_XZ), 0xffffffff)};
  for (const auto& image : cases) EXPECT_FALSE(uncompressed_kernel(image)) << image.size();
}

class KernelPackageTest : public ::testing::Test {
 protected:
  KernelPackageTest() : dir_(*TempDir::make(std::filesystem::temp_directory_path(), "space-kernel-")) {}
  Result<> unpack(const std::vector<std::string>& modules) {
    std::ofstream(dir_.path() / "kernel.deb") << test_kernel_package(elf(), modules);
    std::filesystem::create_directory(dir_.path() / "into");
    return unpack_kernel_package(dir_.path() / "kernel.deb", dir_.path() / "into");
  }
  TempDir dir_;
};

TEST_F(KernelPackageTest, KernelModulesAndTheirOrder) {
  auto modules = guest_modules();
  modules.push_back("other.ko");
  const auto done = unpack(modules);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(*read_file(dir_.path() / "into/vmlinux", 1 << 20), elf());
  EXPECT_EQ(*read_file(dir_.path() / "into/modules/virtio_net.ko", 100), "module virtio_net.ko");
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "into/modules/other.ko"));
  EXPECT_EQ(read_file(dir_.path() / "into/modules/order", 1000)->substr(0, 15), "virtio_ring.ko\n");
}

TEST_F(KernelPackageTest, AModuleThatIsMissingIsNamed) {
  const auto done = unpack({guest_modules().begin(), guest_modules().end() - 1});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("fuse.ko"), std::string::npos);
}

TEST_F(KernelPackageTest, AFileThatIsNoPackage) {
  std::ofstream(dir_.path() / "kernel.deb") << "<html>not found</html>";
  EXPECT_FALSE(unpack_kernel_package(dir_.path() / "kernel.deb", dir_.path()));
}

}  // namespace
}  // namespace space::tmpl
