#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include "agent/tree.h"
#include "base/fd.h"

namespace space::agent {
namespace {

constexpr int kDeepest = 1000;  // each level holds one descriptor
constexpr std::size_t kNamesAtOnce = 4096;

Result<> remove_at(int folder, const char* name, const std::string& shown, int level);

// Everything in the folder. Names are read in portions first, since reading on while removing may skip some.
Result<> empty_folder(int folder, const char* name, const std::string& shown, int level) {
  if (level >= kDeepest)
    return fail(ErrorKind::unsupported, "tree_too_deep", fmt::format("{} is nested deeper than {} folders", shown, kDeepest),
                "remove it with rm -r");
  const int fd = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, fmt::format("open {}", shown));
  const std::unique_ptr<DIR, CloseFolder> stream(::fdopendir(fd));
  if (!stream) {
    ::close(fd);
    return fail_errno(errno, fmt::format("read {}", shown));
  }
  for (;;) {
    std::vector<std::string> names;
    ::rewinddir(stream.get());
    while (const dirent* entry = ::readdir(stream.get())) {
      const std::string_view found = entry->d_name;
      if (found != "." && found != "..") names.emplace_back(found);
      if (names.size() == kNamesAtOnce) break;
    }
    if (names.empty()) return {};
    for (const std::string& one : names) TRY_VOID(remove_at(fd, one.c_str(), shown, level + 1));
  }
}

Result<> remove_at(int folder, const char* name, const std::string& shown, int level) {
  if (::unlinkat(folder, name, 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return fail_errno(errno, fmt::format("remove {} in {}", name, shown));
  const int unlink_error = errno;
  if (::unlinkat(folder, name, AT_REMOVEDIR) == 0) return {};
  if (errno == ENOTDIR) return fail_errno(unlink_error, fmt::format("remove {} in {}", name, shown));
  if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno(errno, fmt::format("remove {} in {}", name, shown));
  TRY_VOID(empty_folder(folder, name, shown, level));
  if (::unlinkat(folder, name, AT_REMOVEDIR) != 0 && errno != ENOENT) return fail_errno(errno, fmt::format("remove {} in {}", name, shown));
  return {};
}

}  // namespace

Result<> remove_entry(const std::string& path, bool recursive) {
  std::string whole = path;
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  const std::string last = whole.substr(whole.rfind('/') + 1);
  if (last.empty() || last == "." || last == "..")
    return fail(ErrorKind::invalid_argument, "invalid_path", fmt::format("{} cannot be removed", path), "name the file or folder itself");
  struct stat st = {};
  if (::lstat(whole.c_str(), &st) != 0) return fail_errno(errno, path);
  if (!S_ISDIR(st.st_mode)) {
    if (::unlink(whole.c_str()) != 0) return fail_errno(errno, fmt::format("remove {}", path));
    return {};
  }
  if (recursive) return remove_at(AT_FDCWD, whole.c_str(), path, 0);
  if (::rmdir(whole.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST)
      return fail(ErrorKind::conflict, "not_empty", fmt::format("the folder {} is not empty", path),
                  "remove what is in it, or ask with recursive=1");
    return fail_errno(errno, fmt::format("remove {}", path));
  }
  return {};
}

}  // namespace space::agent
