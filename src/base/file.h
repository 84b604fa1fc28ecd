// Files that survive a power cut: write aside, fsync, rename, fsync of the folder. All of it blocks: call from a pool.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space {

Result<Fd> open_file(const std::filesystem::path& path, int flags, unsigned mode = 0600);  // O_CLOEXEC is added
Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit);       // longer: too_large
Result<std::string> read_fd(const Fd& fd, std::size_t limit);
Result<> write_all(const Fd& fd, std::string_view bytes);
Result<> pwrite_all(const Fd& fd, std::span<const std::byte> bytes, std::uint64_t offset);
Result<> pread_all(const Fd& fd, std::span<std::byte> bytes, std::uint64_t offset);  // a short file is `corrupt`

// Durable and atomic: after success the new content is there after a power cut; before, the old one.
Result<> write_file_durable(const std::filesystem::path& path, std::string_view content, unsigned mode = 0600);
Result<> sync_directory(const std::filesystem::path& path);
Result<> make_directories(const std::filesystem::path& path, unsigned mode = 0700);
Result<> remove_tree(const std::filesystem::path& path);                             // nothing there is success
Result<std::vector<std::string>> list_directory(const std::filesystem::path& path);  // names, sorted

// Copies content by FICLONE where the filesystem can, else copy_file_range, keeping holes.
Result<> copy_file_sparse(const Fd& from, const Fd& to);

// A folder with a random name that is removed with everything in it.
class TempDir {
 public:
  static Result<TempDir> make(const std::filesystem::path& parent, std::string_view prefix);
  TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempDir& operator=(TempDir&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TempDir(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace space
