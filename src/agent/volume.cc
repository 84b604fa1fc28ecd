#include "agent/volume.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "agent/tree.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/file.h"

namespace space::agent {
namespace {

constexpr std::size_t kLongestPath = 4095, kMostVolumeEntries = 10'000;
constexpr int kMostLinks = 40;  // as the kernel
constexpr int kMostTries = 16;  // openat2(2): EAGAIN while others rename

std::string through(const Fd& folder) { return fmt::format("/proc/self/fd/{}", folder.get()); }

tl::unexpected<Error> invalid_path(std::string why) {
  return fail(ErrorKind::invalid_argument, "invalid_path", std::move(why), "send a path such as /folder/file");
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

// What is not said of something new.
Ownership with_defaults(const Ownership& of) { return {of.uid.value_or(kVolumeUser), of.gid.value_or(kVolumeUser), of.mode}; }

Result<> give(const Fd& thing, const std::string& path, const Ownership& to) {
  if ((to.uid || to.gid) && ::fchownat(thing.get(), "", to.uid.value_or(-1), to.gid.value_or(-1), AT_EMPTY_PATH) != 0)
    return fail_errno(errno, fmt::format("change the owner of {}", path));
  if (to.mode && ::chmod(through(thing).c_str(), *to.mode) != 0) return fail_errno(errno, fmt::format("change the mode of {}", path));
  return {};
}

// Errors of what works on a descriptor's path name that; people know the volume's.
template <class T>
Result<T> told_as(Result<T> result, const std::string& inner, const std::string& shown) {
  if (result) return result;
  if (const std::size_t at = result.error().message.find(inner); at != std::string::npos)
    result.error().message.replace(at, inner.size(), shown);
  return result;
}

}  // namespace

Result<std::string> volume_path(std::string_view text) {
  if (text.empty() || text.size() > kLongestPath || text[0] != '/')
    return invalid_path(fmt::format("a path in a volume is absolute and has at most {} bytes", kLongestPath));
  if (text.find('\0') != text.npos) return invalid_path("a path cannot hold NUL");
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('/', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    if (part.empty()) continue;
    if (part == "." || part == "..") return invalid_path("a path in a volume has no '.' and no '..'");
    out.append("/").append(part);
  }
  return out.empty() ? "/" : out;
}

Result<Volume> Volume::open(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) == 0) {
    if (::chmod(folder.c_str(), 0777) != 0) return fail_errno(errno, "open the volume to everybody");
  } else if (errno != EEXIST) {
    return fail_errno(errno, fmt::format("make {}", folder));
  }
  Fd root(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root) return fail_errno(errno, fmt::format("open {}", folder));
  return Volume(std::move(root));
}

Result<Fd> Volume::open_at(const std::string& path, int flags) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  for (int tries = 0;; ++tries) {
    const long fd = ::syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    if (errno == EAGAIN && tries < kMostTries) continue;
    return fail_errno(errno, path);
  }
}

Result<Volume::Place> Volume::place(const std::string& path) const {
  if (path == "/") return invalid_path("this is the volume itself");
  Place out;
  TRY(out.folder, open_at(parent_of(path), O_PATH | O_DIRECTORY));
  out.name = path.substr(path.rfind('/') + 1);
  return out;
}

Result<Entry> Volume::stat(const std::string& path) const {
  if (path == "/") {
    Entry entry{path, {}, std::nullopt};
    if (::fstat(root_.get(), &entry.status) != 0) return fail_errno(errno, "look at the volume");
    return entry;
  }
  TRY(const Place at, place(path));
  return read_entry(at.folder.get(), at.name.c_str(), path);
}

Result<std::vector<Entry>> Volume::list(const std::string& path, int depth) const {
  TRY(const Fd folder, open_at(path, O_PATH));
  ListRequest request;
  request.path = through(folder);
  request.depth = depth;
  request.limit = kMostVolumeEntries;
  TRY(Listing found, told_as(list_folder(request), request.path, path));
  if (found.next)
    return fail(ErrorKind::too_large, "too_many_entries", fmt::format("{} has more than {} entries", path, kMostVolumeEntries),
                "list a part of it, or mount the volume in a sandbox");
  const std::string above = path == "/" ? "" : path;
  for (Entry& entry : found.entries) entry.path.replace(0, request.path.size(), above);
  return std::move(found.entries);
}

Result<> Volume::make_parents(const std::string& path, const Ownership& of) const {
  for (std::size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1)) {
    const std::string above = path.substr(0, slash);
    TRY(const Place at, place(above));
    if (::mkdirat(at.folder.get(), at.name.c_str(), 0755) != 0) {
      if (errno == EEXIST) continue;
      return fail_errno(errno, fmt::format("mkdir {}", above));
    }
    if (::fchownat(at.folder.get(), at.name.c_str(), *of.uid, *of.gid, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(errno, fmt::format("change the owner of {}", above));
  }
  return {};
}

Result<Entry> Volume::make_folder(const std::string& path, const Ownership& given, bool parents) const {
  const Ownership of = with_defaults(given);
  if (parents) TRY_VOID(make_parents(path, of));
  if (path == "/" && parents) return stat(path);
  TRY(const Place at, place(path));
  if (::mkdirat(at.folder.get(), at.name.c_str(), 0755) != 0) {
    struct stat st = {};
    if (errno != EEXIST) return fail_errno(errno, fmt::format("mkdir {}", path));
    if (!parents || ::fstatat(at.folder.get(), at.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
      return fail(ErrorKind::conflict, "already_exists", fmt::format("{} is there already", path), "leave it, or remove it first");
    return read_entry(at.folder.get(), at.name.c_str(), path);
  }
  const Fd made(::openat(at.folder.get(), at.name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made) return fail_errno(errno, fmt::format("open {}", path));
  TRY_VOID(give(made, path, of));
  return read_entry(at.folder.get(), at.name.c_str(), path);
}

Result<> Volume::remove(const std::string& path) const {
  TRY(const Place at, place(path));
  const std::string inner = fmt::format("{}/{}", through(at.folder), at.name);
  return told_as(remove_entry(inner, true), inner, path);
}

Result<Entry> Volume::change(const std::string& path, const Ownership& to) const {
  TRY(const Fd thing, open_at(path, O_PATH));
  TRY_VOID(give(thing, path, to));
  return stat(path);
}

Result<OpenedFile> Volume::read(const std::string& path) const {
  TRY(const Fd thing, open_at(path, O_PATH));
  const std::string inner = through(thing);
  return told_as(open_for_reading(inner), inner, path);
}

Result<Volume::Place> Volume::place_of_file(std::string path) const {
  for (int links = 0; links < kMostLinks; ++links) {
    TRY(Place at, place(path));
    char target[4096];
    const ssize_t n = ::readlinkat(at.folder.get(), at.name.c_str(), target, sizeof target);
    if (n <= 0) return at;
    const std::string next(target, static_cast<std::size_t>(n));
    path = next.starts_with('/') ? next : fmt::format("{}/{}", path == "/" ? "" : parent_of(path), next);
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    if (path.size() > kLongestPath || path.ends_with("/..") || path.ends_with("/.")) break;
  }
  return fail_errno(ELOOP, path);
}

Result<Volume::Writing> Volume::write(const std::string& path, const Ownership& given, bool parents) const {
  if (parents) TRY_VOID(make_parents(path, with_defaults(given)));
  TRY(const Place at, place_of_file(path));
  struct stat st = {};
  const bool is_new = ::fstatat(at.folder.get(), at.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0;
  const Ownership of = is_new ? with_defaults(given) : given;  // an existing file keeps what is not said
  UploadOptions options;
  options.mode = of.mode;
  options.owner = of.uid;
  options.group = of.gid;
  options.follow = false;
  options.durable = true;
  const std::string inner = fmt::format("{}/{}", through(at.folder), at.name);
  TRY(Upload upload, told_as(Upload::begin(inner, options, 0), inner, path));
  return Writing(std::move(upload), path);
}

Result<Entry> Volume::Writing::commit() {
  TRY(Upload::Done done, upload_.commit());
  done.entry.path = path_;
  return std::move(done.entry);
}

json::object volume_entry(const Entry& entry) {
  const struct stat& st = entry.status;
  const auto time = [](const timespec& t) { return rfc3339(t.tv_sec * 1000 + t.tv_nsec / 1'000'000); };
  const std::string name = entry.path == "/" ? "/" : entry.path.substr(entry.path.rfind('/') + 1);
  json::object out;
  put_bytes(out, "name", name);
  put_bytes(out, "path", entry.path);
  out["type"] = S_ISREG(st.st_mode) ? "file" : S_ISDIR(st.st_mode) ? "directory" : S_ISLNK(st.st_mode) ? "symlink" : "unknown";
  out["size"] = st.st_size;
  out["mode"] = st.st_mode & 07777;
  out["uid"] = st.st_uid;
  out["gid"] = st.st_gid;
  out["atime"] = time(st.st_atim);
  out["mtime"] = time(st.st_mtim);
  out["ctime"] = time(st.st_ctim);
  if (entry.target) put_bytes(out, "target", *entry.target);
  return out;
}

}  // namespace space::agent
