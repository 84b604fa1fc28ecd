#include "agent/envd.h"

#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/entry.h"
#include "base/clock.h"
#include "base/encoding.h"

namespace space::agent {
namespace {

constexpr std::size_t kLongestPath = 4095;
constexpr std::string_view kMetadata = "user.e2b.";
constexpr std::size_t kMostMetadata = 16 << 10;

// "/home/user" and "a/../b/./c" → "/home/user/b/c".
std::string joined(std::string_view home, std::string_view given) {
  std::vector<std::string_view> parts;
  for (std::string_view rest : {home, given}) {
    while (!rest.empty()) {
      const std::size_t slash = rest.find('/');
      const std::string_view part = rest.substr(0, slash);
      rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
      if (part.empty() || part == ".") continue;
      if (part != "..")
        parts.push_back(part);
      else if (!parts.empty())
        parts.pop_back();
    }
  }
  return fmt::format("/{}", fmt::join(parts, "/"));
}

// As Go writes a mode: the letters of the kind and of the special bits, or '-', then the nine permissions.
std::string permissions(mode_t mode) {
  std::string out;
  if (S_ISDIR(mode)) out += 'd';
  if (S_ISLNK(mode)) out += 'L';
  if (S_ISBLK(mode) || S_ISCHR(mode)) out += 'D';
  if (S_ISFIFO(mode)) out += 'p';
  if (S_ISSOCK(mode)) out += 'S';
  if (mode & S_ISUID) out += 'u';
  if (mode & S_ISGID) out += 'g';
  if (S_ISCHR(mode)) out += 'c';
  if (mode & S_ISVTX) out += 't';
  if (out.empty()) out += '-';
  for (int bit = 8; bit >= 0; --bit) out += mode & (1U << bit) ? "xwr"[bit % 3] : '-';
  return out;
}

std::string_view kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "FILE_TYPE_FILE";
  if (S_ISDIR(mode)) return "FILE_TYPE_DIRECTORY";
  return "FILE_TYPE_UNSPECIFIED";
}

std::string owner_name(std::string_view name, unsigned number) { return name.empty() ? std::to_string(number) : std::string(name); }

json::object metadata_of(const std::string& path) {
  json::object out;
  std::vector<char> names(kMostMetadata), value(kMostMetadata);
  const ssize_t size = ::llistxattr(path.c_str(), names.data(), names.size());
  for (ssize_t at = 0; at < size;) {
    const std::string_view name(names.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (!name.starts_with(kMetadata)) continue;
    const ssize_t n = ::lgetxattr(path.c_str(), name.data(), value.data(), value.size());
    const std::string_view text(value.data(), n < 0 ? 0 : static_cast<std::size_t>(n));
    if (n >= 0 && is_utf8(text) && is_utf8(name)) out[name.substr(kMetadata.size())] = text;
  }
  return out;
}

std::string name_of(const std::string& path) {
  std::string_view name = path;
  while (name.size() > 1 && name.ends_with('/')) name.remove_suffix(1);
  const std::size_t slash = name.rfind('/');
  return std::string(slash == std::string_view::npos || name.size() == 1 ? name : name.substr(slash + 1));
}

}  // namespace

Result<EnvdUser> envd_user(Agent& agent, std::string_view name) {
  EnvdUser out;
  out.accounts = agent.accounts.current();
  auto found = agent.find_user(name);
  if (!found)
    return fail(ErrorKind::unauthenticated, "unauthenticated",
                fmt::format("invalid username: '{}'", is_utf8(name) ? name.substr(0, 64) : "?"));
  out.user = std::move(*found);
  return out;
}

Result<EnvdUser> envd_user(Agent& agent, const http::Exchange& exchange) {
  constexpr std::string_view kScheme = "Basic ";
  const std::string_view header = exchange.headers().get("Authorization");
  if (header.size() < kScheme.size() || !http::equal_no_case(header.substr(0, kScheme.size()), kScheme)) return envd_user(agent, "");
  const auto decoded = base64_decode(header.substr(kScheme.size()));
  if (!decoded) return fail(ErrorKind::unauthenticated, "unauthenticated", "the Authorization header is no user name in base64");
  return envd_user(agent, decoded->substr(0, decoded->find(':')));
}

Result<std::string> envd_path(const Agent& agent, const User& user, std::string_view given) {
  if (given.size() > kLongestPath || given.find('\0') != std::string_view::npos)
    return fail(ErrorKind::invalid_argument, "invalid_argument", "a path has at most 4095 bytes and no NUL");
  if (given.empty()) return agent.settings.default_cwd.empty() ? user.home : agent.settings.default_cwd;
  if (given.starts_with('/')) return std::string(given);
  if (given == "~" || given.starts_with("~/")) return joined(user.home, given.substr(1));
  if (given.starts_with('~'))
    return fail(ErrorKind::invalid_argument, "invalid_argument", "a path can start at the user's own home alone",
                "write the absolute path");
  return joined(user.home, given);
}

Result<json::object> envd_entry(const std::string& path, const Accounts& accounts) {
  auto entry = read_entry(AT_FDCWD, path.c_str(), path);
  if (!entry) {
    if (entry.error().kind == ErrorKind::not_found)
      return fail(ErrorKind::not_found, "not_found", fmt::format("path '{}' does not exist", path));
    return tl::unexpected(std::move(entry).error());
  }
  const struct stat& st = entry->status;
  json::object out;
  put_bytes(out, "name", name_of(path));
  put_bytes(out, "path", path);
  mode_t shown = st.st_mode;
  if (S_ISLNK(st.st_mode)) {
    char target[PATH_MAX];
    struct stat behind = {};
    const bool there = ::realpath(path.c_str(), target) != nullptr && ::stat(target, &behind) == 0;
    put_bytes(out, "symlinkTarget", there ? std::string_view(target) : std::string_view(path));
    shown = there ? behind.st_mode : 0;
  }
  out["type"] = kind_of(shown);
  if (S_ISLNK(st.st_mode)) out["isSymlink"] = true;
  out["size"] = std::to_string(st.st_size);
  out["mode"] = shown & 0777;
  out["permissions"] = permissions(st.st_mode);
  put_bytes(out, "owner", owner_name(accounts.user_name(st.st_uid), st.st_uid));
  put_bytes(out, "group", owner_name(accounts.group_name(st.st_gid), st.st_gid));
  out["modifiedTime"] = rfc3339(st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1'000'000);
  if (json::object metadata = metadata_of(path); !metadata.empty()) out["metadata"] = std::move(metadata);
  return out;
}

Result<> envd_make_folders(const std::string& path, bool whole, const User& user) {
  std::string_view all = path;
  while (all.size() > 1 && all.ends_with('/')) all.remove_suffix(1);
  for (std::size_t at = 1; at < all.size();) {
    at = std::min(all.find('/', at), all.size());
    if (at == all.size() && !whole) break;
    const std::string folder(all.substr(0, at));
    if (::mkdir(folder.c_str(), 0755) == 0) {
      if (::geteuid() == 0 && ::lchown(folder.c_str(), user.uid, user.gid) != 0) return fail_errno(errno, fmt::format("chown {}", folder));
    } else {
      const int error = errno;
      struct stat st = {};
      const bool there = ::stat(folder.c_str(), &st) == 0;
      if (there && !S_ISDIR(st.st_mode))
        return fail(ErrorKind::invalid_argument, "invalid_argument",
                    fmt::format("path '{}' already exists and is not a directory", folder));
      if (!there) return fail_errno(error, fmt::format("mkdir {}", folder));
    }
    ++at;
  }
  return {};
}

Task<> envd_plain(http::Exchange& exchange, Task<> work) {
  auto done = co_await std::move(work);
  if (done || exchange.started()) co_return done;
  const Error& error = done.error();
  const int status = error.kind == ErrorKind::too_large ? 400 : http_status(error.kind);
  const json::object body{{"code", status}, {"message", error.message}};
  http::Response response = http::json_response(status, json::serialize(body));
  co_return co_await exchange.reply(std::move(response));
}

void add_envd_routes(http::Router& router, Agent& agent) {
  const auto envd = std::make_shared<Envd>(agent);
  add_envd_process_routes(router, envd);
  add_envd_filesystem_routes(router, envd);
  add_envd_watch_routes(router, envd);
  add_envd_file_routes(router, envd);
  add_envd_system_routes(router, envd);
}

}  // namespace space::agent
