#include "snapshot/memory_image.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace space::snapshot {
namespace {

constexpr std::uint64_t kImageBytes = 64 << 20;

class MemoryImages : public ::testing::Test {
 protected:
  MemoryImages() : dir_(TempDir::make("/tmp", "space-memory-").value()), memory_(new_guest_memory(kImageBytes).value()) {}
  void write_page(std::uint64_t page, char fill) {
    const std::string bytes(kPageBytes, fill);
    ASSERT_TRUE(pwrite_all(memory_, std::as_bytes(std::span(bytes)), page * kPageBytes).has_value());
  }
  Result<MemoryImage> store() {
    file_ = open_file(dir_.path() / "memory", O_RDWR | O_CREAT | O_TRUNC).value();
    return store_memory_image(memory_, kImageBytes, file_);
  }
  static std::string page_of(const Fd& fd, std::uint64_t page) {
    std::string bytes(kPageBytes, '?');
    EXPECT_TRUE(pread_all(fd, std::as_writable_bytes(std::span(bytes)), page * kPageBytes).has_value());
    return bytes;
  }

  TempDir dir_;
  Fd memory_, file_;
};

TEST_F(MemoryImages, KeepPagesAndLeaveZerosOut) {
  for (std::uint64_t page : {0, 1, 7, 300, 16383}) write_page(page, 'a');
  write_page(5, '\0');  // touched, but zero
  auto image = store();
  ASSERT_TRUE(image.has_value()) << image.error().message;
  EXPECT_EQ(image->pages, 5u);
  struct stat st {};
  ::fstat(file_.get(), &st);
  EXPECT_EQ(static_cast<std::uint64_t>(st.st_size), kImageBytes);
  EXPECT_LT(st.st_blocks * 512, 1 << 20);
  auto loaded = load_memory_image(file_, *image);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  for (std::uint64_t page : {0, 1, 7, 300, 16383}) EXPECT_EQ(page_of(*loaded, page), std::string(kPageBytes, 'a'));
  for (std::uint64_t page : {2, 5, 299, 16382}) EXPECT_EQ(page_of(*loaded, page), std::string(kPageBytes, '\0'));
}

TEST_F(MemoryImages, ALoadedImageCannotBeAlteredByAnybody) {
  write_page(3, 'x');
  auto image = store();
  auto loaded = load_memory_image(file_, *image);
  ASSERT_TRUE(loaded.has_value());
  // As a VMM would get it: opened anew for writing through /proc.
  auto again = open_file("/proc/self/fd/" + std::to_string(loaded->get()), O_RDWR);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(::pwrite(again->get(), "y", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, again->get(), 0), MAP_FAILED);
  EXPECT_EQ(::fallocate(again->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageBytes), -1);
  EXPECT_EQ(::ftruncate(again->get(), 0), -1);
  EXPECT_EQ(::fcntl(again->get(), F_ADD_SEALS, 0), -1);
  auto* own = static_cast<char*>(::mmap(nullptr, kImageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, again->get(), 0));
  ASSERT_NE(own, MAP_FAILED);
  own[3 * kPageBytes] = 'y';
  EXPECT_EQ(page_of(*loaded, 3)[0], 'x');
  ::munmap(own, kImageBytes);
}

TEST_F(MemoryImages, DamageIsFound) {
  write_page(3, 'x');
  write_page(9, 'x');
  const auto image = store();
  ASSERT_TRUE(image.has_value());
  const auto code = [&] { return load_memory_image(file_, *image).error().code; };
  const std::string other(1, 'y'), page(kPageBytes, 'x'), zeros(kPageBytes, '\0');
  ASSERT_TRUE(pwrite_all(file_, std::as_bytes(std::span(other)), 9 * kPageBytes + 17).has_value());
  EXPECT_EQ(code(), "memory_image_corrupt");
  // The same pages at another place.
  ASSERT_TRUE(pwrite_all(file_, std::as_bytes(std::span(zeros)), 9 * kPageBytes).has_value());
  ASSERT_TRUE(pwrite_all(file_, std::as_bytes(std::span(page)), 10 * kPageBytes).has_value());
  EXPECT_EQ(code(), "memory_image_corrupt");
  ASSERT_EQ(::ftruncate(file_.get(), kImageBytes - 4096), 0);
  EXPECT_EQ(code(), "memory_image_corrupt");
}

}  // namespace
}  // namespace space::snapshot
