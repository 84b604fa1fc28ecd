#include "agent/tree.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace space::agent {
namespace {

std::string_view without_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

Result<> make_one(const std::string& path, mode_t mode, bool& created) {
  if (::mkdir(path.c_str(), mode) == 0) {
    created = true;
    return {};
  }
  const int error = errno;
  struct stat st = {};
  if (error == EEXIST && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return {};
  return fail_errno(error, fmt::format("mkdir {}", path));
}

}  // namespace

Result<> make_parents(const std::string& path) {
  const std::string_view whole = without_slashes(path);
  struct stat st = {};
  const std::string parent(whole.substr(0, whole.rfind('/')));
  if (parent.empty() || ::stat(parent.c_str(), &st) == 0) return {};
  for (std::size_t at = 1; (at = whole.find('/', at)) != std::string_view::npos; ++at) {
    bool created = false;
    TRY_VOID(make_one(std::string(whole.substr(0, at)), 0755, created));
  }
  return {};
}

Result<MadeFolder> make_folder(const std::string& path, mode_t mode, bool parents) {
  if (parents) TRY_VOID(make_parents(path));
  MadeFolder made;
  TRY_VOID(make_one(path, mode, made.created));
  TRY(made.entry, read_entry(AT_FDCWD, path.c_str(), path));
  return made;
}

Result<Entry> move_entry(const std::string& from, const std::string& to, bool overwrite, bool parents) {
  if (parents) TRY_VOID(make_parents(to));
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), overwrite ? 0 : RENAME_NOREPLACE) != 0) {
    if (errno == EXDEV)
      return fail(ErrorKind::unsupported, "cross_device", fmt::format("{} and {} lie on different filesystems", from, to),
                  "copy and then remove, for example with mv");
    return fail_errno(errno, fmt::format("move {} to {}", from, to));
  }
  return read_entry(AT_FDCWD, to.c_str(), to);
}

}  // namespace space::agent
