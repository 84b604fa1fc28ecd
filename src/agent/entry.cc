#include "agent/entry.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include "base/encoding.h"

namespace space::agent {
namespace {

// Every byte that is not ASCII becomes U+FFFD: enough for people, and programs have the base64 form.
std::string lossy(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    if (static_cast<unsigned char>(c) < 0x80)
      out.push_back(c);
    else
      out.append("\xef\xbf\xbd");
  }
  return out;
}

}  // namespace

void put_bytes(json::object& object, std::string_view name, std::string_view bytes) {
  if (is_utf8(bytes)) {
    object[name] = bytes;
    return;
  }
  object[name] = lossy(bytes);
  object[fmt::format("{}_base64", name)] = base64_encode(as_bytes(bytes));
}

std::string_view type_name(mode_t mode) {
  if (S_ISREG(mode)) return "file";
  if (S_ISDIR(mode)) return "dir";
  if (S_ISLNK(mode)) return "symlink";
  return "other";
}

Result<Entry> read_entry(int folder, const char* name, std::string path) {
  Entry entry{std::move(path), {}, std::nullopt};
  if (::fstatat(folder, name, &entry.status, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, entry.path);
  if (S_ISLNK(entry.status.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = ::readlinkat(folder, name, target, sizeof target);
    if (n >= 0) entry.target.emplace(target, static_cast<std::size_t>(n));
  }
  return entry;
}

json::object to_json(const Entry& entry, const Accounts& accounts) {
  const struct stat& st = entry.status;
  std::string_view name = entry.path;
  while (name.size() > 1 && name.ends_with('/')) name.remove_suffix(1);
  if (const std::size_t slash = name.rfind('/'); slash != std::string_view::npos && name.size() > 1) name.remove_prefix(slash + 1);
  json::object out;
  put_bytes(out, "name", name);
  put_bytes(out, "path", entry.path);
  out["type"] = type_name(st.st_mode);
  out["size"] = st.st_size;
  out["mode"] = fmt::format("{:04o}", st.st_mode & 07777);
  out["uid"] = st.st_uid;
  out["gid"] = st.st_gid;
  put_bytes(out, "user", accounts.user_name(st.st_uid));
  put_bytes(out, "group", accounts.group_name(st.st_gid));
  out["mtime_ms"] = st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1'000'000;
  if (entry.target) put_bytes(out, "target", *entry.target);
  return out;
}

}  // namespace space::agent
