#include "agent/authority.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/file.h"

namespace space::agent {
namespace {

constexpr std::string_view kMark = "# SPACE egress gateway";
constexpr std::size_t kLargestBundle = 8 << 20;

// A regular file of one name, opened for reading and writing; what else stands there (a link, a FIFO) is moved out of the way.
Result<Fd> open_own(const std::string& path) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    struct stat st = {};
    if (fd && ::fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == ::geteuid()) {
      if ((st.st_mode & 07777) != 0644 && ::fchmod(fd.get(), 0644) != 0) return fail_errno(errno, path);
      return fd;
    }
    if (::unlink(path.c_str()) != 0) return fail_errno(errno, path);
  }
  return fail_errno(EEXIST, path);
}

Result<std::size_t> size_of(const Fd& fd) {
  struct stat st = {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "stat");
  return static_cast<std::size_t>(st.st_size);
}

Result<> write_own_file(const std::string& path, std::string_view block) {
  TRY(const Fd fd, open_own(path));
  TRY(const std::size_t size, size_of(fd));
  if (size > block.size() && ::ftruncate(fd.get(), static_cast<off_t>(block.size())) != 0) return fail_errno(errno, path);
  return pwrite_all(fd, as_bytes(block), 0);
}

Result<> write_bundle(const std::string& path, std::string_view pem, std::string_view block) {
  TRY(const Fd fd, open_own(path));
  TRY(const std::size_t size, size_of(fd));
  std::string end(kMark.size(), '\0');
  if (size >= kAuthorityBlock) {
    const std::size_t at = size - kAuthorityBlock;
    TRY_VOID(pread_all(fd, std::as_writable_bytes(std::span(end)), at));
    if (end == kMark) return pwrite_all(fd, as_bytes(block), at);
  }
  if (size > kLargestBundle) return fail(ErrorKind::too_large, "bundle_too_large", path + " is too large for a bundle of certificates");
  std::string text(size, '\0');
  TRY_VOID(pread_all(fd, std::as_writable_bytes(std::span(text)), 0));
  if (text.find(pem) != std::string::npos) return {};
  const bool line_open = !text.empty() && !text.ends_with('\n');
  return pwrite_all(fd, as_bytes((line_open ? "\n" : "") + std::string(block)), size);
}

}  // namespace

std::string authority_block(std::string_view pem) {
  std::string block(kMark);
  block += '\n';
  block += pem;
  block.resize(kAuthorityBlock, '\n');
  return block;
}

Result<> install_authority(const std::string& root, std::string_view pem) {
  if (pem.size() > kLongestAuthority || !pem.starts_with("-----BEGIN CERTIFICATE-----\n"))
    return fail(ErrorKind::invalid_argument, "invalid_field", "ca: must be one certificate in PEM of at most 3584 bytes");
  const std::string block = authority_block(pem), bundle = root + kAuthorityBundle, file = root + kAuthorityFile;
  for (const std::string& path : {bundle, file}) TRY_VOID(make_directories(path.substr(0, path.rfind('/')), 0755));
  TRY_VOID(write_own_file(file, block));
  return write_bundle(bundle, pem, block);
}

}  // namespace space::agent
