#include "agent/content.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include "agent/tree.h"
#include "base/file.h"
#include "base/random.h"

namespace space::agent {
namespace {

constexpr int kMostLinks = 40;                  // as the kernel
constexpr std::uint64_t kFlushEvery = 8 << 20;  // starts the disk early, so that the last sync has little left

tl::unexpected<Error> not_a_file(const std::string& path, mode_t mode) {
  if (S_ISDIR(mode))
    return fail(ErrorKind::invalid_argument, "is_a_directory", fmt::format("{} is a folder", path), "name a file in it, or list it");
  return fail(ErrorKind::invalid_argument, "not_a_file", fmt::format("{} is a device, a pipe or a socket", path),
              "use it from a command in the sandbox");
}

bool is_refused(int error) { return error == EACCES || error == EPERM || error == EROFS || error == ENOENT; }

}  // namespace

Result<OpenedFile> open_for_reading(const std::string& path) {
  OpenedFile opened;
  // Looked at first: opening a device can do something.
  if (::stat(path.c_str(), &opened.status) != 0) return fail_errno(errno, path);
  if (!S_ISREG(opened.status.st_mode)) return not_a_file(path, opened.status.st_mode);
  opened.file = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened.file) return fail_errno(errno, path);
  if (::fstat(opened.file.get(), &opened.status) != 0) return fail_errno(errno, path);
  if (!S_ISREG(opened.status.st_mode)) return not_a_file(path, opened.status.st_mode);
  return opened;
}

Result<Upload> Upload::begin(const std::string& path, const UploadOptions& options, uid_t user) {
  Upload upload;
  upload.shown_ = path;
  upload.options_ = options;
  if (user != 0 && ((options.owner && *options.owner != user)))
    return fail(ErrorKind::permission_denied, "access_denied", "only root may give a file to another owner", "ask with user=root");
  if (options.parents) TRY_VOID(make_parents(path));
  TRY_VOID(upload.find_place(path));
  TRY_VOID(upload.look_at_existing(user));
  if (!upload.in_place_) TRY_VOID(upload.open_temporary());
  return upload;
}

// Follows symlinks by hand, since the last one may name something that is not there yet. Folders are held open, so what happens to
// the path meanwhile does not matter.
Result<> Upload::find_place(const std::string& path) {
  std::string rest = path;
  for (int links = 0; links < kMostLinks; ++links) {
    if (rest.ends_with('/')) return not_a_file(shown_, S_IFDIR);
    const std::size_t slash = rest.rfind('/');
    name_ = slash == std::string::npos ? rest : rest.substr(slash + 1);
    const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : rest.substr(0, slash);
    if (name_ == "." || name_ == "..") return not_a_file(shown_, S_IFDIR);
    Fd folder(::openat(folder_ ? folder_.get() : AT_FDCWD, parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return fail_errno(errno, fmt::format("the folder of {}", shown_));
    folder_ = std::move(folder);
    char target[PATH_MAX];
    const ssize_t n = ::readlinkat(folder_.get(), name_.c_str(), target, sizeof target);
    if (n <= 0) return {};  // not a link
    if (!options_.follow) break;
    rest.assign(target, static_cast<std::size_t>(n));
  }
  return fail_errno(ELOOP, shown_);
}

Result<> Upload::look_at_existing(uid_t user) {
  if (::fstatat(folder_.get(), name_.c_str(), &before_, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno(errno, shown_);
  }
  if (!S_ISREG(before_.st_mode)) return not_a_file(shown_, before_.st_mode);
  existing_ = Fd(::openat(folder_.get(), name_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY));
  if (!existing_ && errno != ETXTBSY) return fail_errno(errno, shown_);  // a program that runs can be replaced, not written
  if (existing_ && (::fstat(existing_.get(), &before_) != 0 || !S_ISREG(before_.st_mode))) return not_a_file(shown_, before_.st_mode);
  exists_ = true;
  in_place_ = existing_ && (before_.st_nlink > 1 || (user != 0 && before_.st_uid != user));
  if (options_.mode && user != 0 && before_.st_uid != user && (before_.st_mode & 07777) != *options_.mode)
    return fail(ErrorKind::permission_denied, "access_denied", "only the owner of a file may change its mode", "leave the mode out");
  return {};
}

Result<> Upload::open_temporary() {
  file_ = Fd(::openat(folder_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!file_ && !is_refused(errno)) {  // a filesystem without nameless files
    temporary_ = fmt::format(".space-upload-{}", new_id());
    file_ = Fd(::openat(folder_.get(), temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_) temporary_.clear();
  }
  if (!file_) {
    if (!existing_ || !is_refused(errno)) return fail_errno(errno, fmt::format("write {}", shown_));
    in_place_ = true;
    return {};
  }
  // The group of the file that is replaced: a user who is not in it cannot give it, and then the file itself is written.
  if (exists_ && ::fchown(file_.get(), before_.st_uid, before_.st_gid) != 0) {
    if (!existing_) return fail_errno(errno, fmt::format("keep the owner of {}", shown_));
    if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
    temporary_.clear();
    file_.reset();
    in_place_ = true;
  }
  return {};
}

Result<> Upload::write(std::span<const std::byte> bytes) {
  const Fd& to = in_place_ ? existing_ : file_;
  // Files of /proc and /sys have no size and cannot be cut; they take a value in one write.
  if (in_place_ && !std::exchange(truncated_, true) && before_.st_size > 0 && ::ftruncate(to.get(), 0) != 0)
    return fail_errno(errno, fmt::format("empty {}", shown_));
  while (!bytes.empty()) {
    const ssize_t n = ::write(to.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, fmt::format("write {}", shown_));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    written_ += static_cast<std::uint64_t>(n);
  }
  if (written_ - flushing_ >= kFlushEvery) {
    ::sync_file_range(to.get(), static_cast<off64_t>(flushing_), static_cast<off64_t>(written_ - flushing_), SYNC_FILE_RANGE_WRITE);
    flushing_ = written_;
  }
  return {};
}

Result<Upload::Done> Upload::commit() {
  TRY_VOID(write({}));  // an empty file is cut as well
  const Fd& to = in_place_ ? existing_ : file_;
  if ((options_.owner || options_.group) && ::fchown(to.get(), options_.owner.value_or(-1), options_.group.value_or(-1)) != 0)
    return fail_errno(errno, fmt::format("change the owner of {}", shown_));
  // Rights of a set-uid file are not inherited by bytes from outside.
  const mode_t mode = options_.mode.value_or(exists_ ? before_.st_mode & 0777 : 0644);
  if ((!in_place_ || options_.mode) && ::fchmod(to.get(), mode) != 0)
    return fail_errno(errno, fmt::format("change the mode of {}", shown_));
  if (::fsync(to.get()) != 0 && errno != EINVAL) return fail_errno(errno, fmt::format("sync {}", shown_));
  if (!in_place_) TRY_VOID(take_name());
  if (options_.durable) {
    const Fd folder(::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder || ::fsync(folder.get()) != 0) return fail_errno(errno, fmt::format("sync the folder of {}", shown_));
  }
  Done done;
  done.created = !exists_;
  TRY(done.entry, read_entry(folder_.get(), name_.c_str(), shown_));
  return done;
}

Result<> Upload::take_name() {
  if (temporary_.empty()) {
    // linkat(2): a nameless file is linked through /proc by whoever holds it.
    const std::string self = fmt::format("/proc/self/fd/{}", file_.get());
    if (!exists_ && ::linkat(AT_FDCWD, self.c_str(), folder_.get(), name_.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
    if (!exists_ && errno != EEXIST) return fail_errno(errno, fmt::format("name {}", shown_));
    temporary_ = fmt::format(".space-upload-{}", new_id());
    if (::linkat(AT_FDCWD, self.c_str(), folder_.get(), temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      temporary_.clear();
      return fail_errno(errno, fmt::format("name {}", shown_));
    }
  }
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0)
    return fail_errno(errno, fmt::format("rename to {}", shown_));
  temporary_.clear();
  return {};
}

Upload::~Upload() {
  if (folder_ && !temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

}  // namespace space::agent
