#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/staged_file.h"

namespace space {
namespace fs = std::filesystem;

Result<Fd> open_file(const fs::path& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return fail_errno(errno, fmt::format("open {}", path.string()));
  return Fd(fd);
}

Result<std::string> read_fd(const Fd& fd, std::size_t limit) {
  std::string out;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read");
    if (n == 0) return out;
    if (out.size() + static_cast<std::size_t>(n) > limit)
      return fail(ErrorKind::too_large, "file_too_large", fmt::format("more than {} bytes", limit));
    out.append(buffer, static_cast<std::size_t>(n));
  }
}

Result<std::string> read_file(const fs::path& path, std::size_t limit) {
  TRY(Fd fd, open_file(path, O_RDONLY));
  return read_fd(fd, limit);
}

Result<> write_all(const Fd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "write");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<> pwrite_all(const Fd& fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "pwrite");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<> pread_all(const Fd& fd, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "pread");
    if (n == 0) return fail(ErrorKind::corrupt, "file_too_short", fmt::format("the file ends at {}", offset));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<> sync_directory(const fs::path& path) {
  TRY(Fd fd, open_file(path, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return fail_errno(errno, fmt::format("fsync {}", path.string()));
  return {};
}

Result<StagedFile> StagedFile::write(fs::path path, std::string_view content, unsigned mode) {
  fs::path aside = path.parent_path() / fmt::format(".{}.{}", path.filename().string(), new_id());
  StagedFile staged(std::move(path), std::move(aside));
  TRY(const Fd fd, open_file(staged.aside_, O_WRONLY | O_CREAT | O_EXCL, mode));
  TRY_VOID(write_all(fd, content));
  if (::fdatasync(fd.get()) != 0) return fail_errno(errno, fmt::format("sync {}", staged.path_.string()));
  return staged;
}

Result<> StagedFile::publish() {
  if (::rename(aside_.c_str(), path_.c_str()) != 0) return fail_errno(errno, fmt::format("rename to {}", path_.string()));
  aside_.clear();
  return sync_directory(path_.parent_path());
}

StagedFile::~StagedFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

Result<> write_file_durable(const fs::path& path, std::string_view content, unsigned mode) {
  TRY(StagedFile staged, StagedFile::write(path, content, mode));
  return staged.publish();
}

Result<> make_directories(const fs::path& path, unsigned mode) {
  if (path.empty() || path == "/") return {};
  if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT) return fail_errno(errno, fmt::format("mkdir {}", path.string()));
  TRY_VOID(make_directories(path.parent_path(), mode));
  if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  return fail_errno(errno, fmt::format("mkdir {}", path.string()));
}

Result<> remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return fail_errno(error.value(), fmt::format("remove {}", path.string()));
  return {};
}

Result<std::vector<std::string>> list_directory(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return fail_errno(error.value(), fmt::format("list {}", path.string()));
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

// Between filesystems that have no common way of their own (copy_file_range(2): EXDEV).
Result<> copy_by_hand(const Fd& from, const Fd& to, off_t at, off_t end) {
  std::vector<std::byte> buffer(256 << 10);
  while (at < end) {
    const std::span part(buffer.data(), std::min(buffer.size(), static_cast<std::size_t>(end - at)));
    TRY_VOID(pread_all(from, part, static_cast<std::uint64_t>(at)));
    TRY_VOID(pwrite_all(to, part, static_cast<std::uint64_t>(at)));
    at += static_cast<off_t>(part.size());
  }
  return {};
}

}  // namespace

Result<> copy_file_sparse(const Fd& from, const Fd& to) {
  if (::ioctl(to.get(), FICLONE, from.get()) == 0) return {};
  struct stat st = {};
  if (::fstat(from.get(), &st) != 0) return fail_errno(errno, "fstat");
  if (::ftruncate(to.get(), st.st_size) != 0) return fail_errno(errno, "ftruncate");
  for (off_t at = 0; at < st.st_size;) {
    const off_t data = ::lseek(from.get(), at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    if (data < 0) return fail_errno(errno, "seek to data");
    const off_t hole = ::lseek(from.get(), data, SEEK_HOLE);
    if (hole < 0) return fail_errno(errno, "seek to hole");
    off_t in = data, out = data;
    while (in < hole) {
      const ssize_t n = ::copy_file_range(from.get(), &in, to.get(), &out, static_cast<std::size_t>(hole - in), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
        TRY_VOID(copy_by_hand(from, to, in, hole));
        break;
      }
      if (n < 0) return fail_errno(errno, "copy");
      if (n == 0) break;
    }
    at = hole;
  }
  return {};
}

Result<TempDir> TempDir::make(const fs::path& parent, std::string_view prefix) {
  fs::path path = parent / (std::string(prefix) + new_id());
  if (::mkdir(path.c_str(), 0700) != 0) return fail_errno(errno, fmt::format("mkdir {}", path.string()));
  return TempDir(std::move(path));
}

TempDir::~TempDir() {
  if (!path_.empty()) (void)remove_tree(path_);
}

}  // namespace space
