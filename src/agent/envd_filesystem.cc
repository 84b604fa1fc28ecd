// E2B's filesystem.Filesystem but for its watchers.
#include <cerrno>
#include <fmt/format.h>
#include <sys/stat.h>

#include "agent/envd.h"
#include "agent/envd_connect.h"
#include "agent/tree.h"

namespace space::agent {
namespace {

using EnvdPtr = std::shared_ptr<Envd>;

constexpr std::size_t kMostEnvdEntries = 100'000;  // in one answer
constexpr std::size_t kPage = 5'000;
constexpr int kMostEnvdDepth = 1'000;

struct Place {
  EnvdUser who;
  std::string path;
};

Result<Place> place(Envd& envd, const http::Exchange& exchange, const json::object& request, std::string_view field = "path") {
  JsonReader r(request);
  r.ignore_unknown();
  const std::string given = r.text(field, 0, 4095, "");
  TRY_VOID(r.done());
  Place out;
  TRY(out.who, envd_user(envd.agent, exchange));
  TRY(out.path, envd_path(envd.agent, out.who.user, given));
  return out;
}

auto missing(const std::string& path) { return fail(ErrorKind::not_found, "not_found", fmt::format("path '{}' does not exist", path)); }

Task<json::object> stat_path(EnvdPtr envd, http::Exchange& exchange, const json::object& request) {
  CO_TRY(const Place at, place(*envd, exchange, request));
  auto work = [&at] { return envd_entry(at.path, *at.who.accounts); };
  CO_TRY(json::object entry, co_await envd->agent.pool.run(std::move(work)));
  co_return json::object{{"entry", std::move(entry)}};
}

Result<json::object> make(const Place& at) {
  struct stat st = {};
  if (::stat(at.path.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) return fail(ErrorKind::conflict, "already_exists", fmt::format("directory already exists: {}", at.path));
    return fail(ErrorKind::invalid_argument, "invalid_argument", fmt::format("path already exists but it is not a directory: {}", at.path));
  }
  TRY_VOID(envd_make_folders(at.path, true, at.who.user));
  return envd_entry(at.path, *at.who.accounts);
}

Task<json::object> make_dir(EnvdPtr envd, http::Exchange& exchange, const json::object& request) {
  CO_TRY(const Place at, place(*envd, exchange, request));
  auto work = [&at] { return make(at); };
  CO_TRY(json::object entry, co_await envd->agent.pool.run(std::move(work)));
  co_return json::object{{"entry", std::move(entry)}};
}

Result<json::object> rename_to(const Place& from, const Place& to) {
  struct stat st = {};
  if (::lstat(from.path.c_str(), &st) != 0 && errno == ENOENT) return missing(from.path);
  TRY_VOID(envd_make_folders(to.path, false, to.who.user));
  TRY_VOID(move_entry(from.path, to.path, true, false));
  return envd_entry(to.path, *to.who.accounts);
}

Task<json::object> move_path(EnvdPtr envd, http::Exchange& exchange, const json::object& request) {
  CO_TRY(const Place from, place(*envd, exchange, request, "source"));
  CO_TRY(const Place to, place(*envd, exchange, request, "destination"));
  auto work = [&from, &to] { return rename_to(from, to); };
  CO_TRY(json::object entry, co_await envd->agent.pool.run(std::move(work)));
  co_return json::object{{"entry", std::move(entry)}};
}

Result<json::object> list_all(const Place& at, int depth) {
  struct stat st = {};
  if (::stat(at.path.c_str(), &st) != 0) {
    if (errno == ELOOP)
      return fail(ErrorKind::conflict, "failed_precondition", fmt::format("path '{}' leads through too many symlinks", at.path));
    return missing(at.path);
  }
  if (!S_ISDIR(st.st_mode))
    return fail(ErrorKind::invalid_argument, "invalid_argument", fmt::format("path is not a directory: {}", at.path));
  json::array entries;
  ListRequest request{at.path, depth, kPage, {}};
  for (;;) {
    TRY(const Listing listing, list_folder(request));
    for (const Entry& entry : listing.entries)
      if (auto shown = envd_entry(entry.path, *at.who.accounts)) entries.push_back(std::move(*shown));  // else it went meanwhile
    if (!listing.next) return json::object{{"entries", std::move(entries)}};
    if (entries.size() >= kMostEnvdEntries)
      return fail(ErrorKind::resource_exhausted, "resource_exhausted",
                  fmt::format("{} holds more than {} entries", at.path, kMostEnvdEntries), "list a part of it, or a smaller depth");
    request.after = *listing.next;
  }
}

Task<json::object> list_dir(EnvdPtr envd, http::Exchange& exchange, const json::object& request) {
  CO_TRY(const Place at, place(*envd, exchange, request));
  JsonReader r(request);
  r.ignore_unknown();
  const auto depth = r.number("depth", 0, std::numeric_limits<std::uint32_t>::max(), 1);
  CO_TRY_VOID(r.done());
  auto work = [&at, depth] { return list_all(at, static_cast<int>(std::clamp<std::int64_t>(depth, 1, kMostEnvdDepth))); };
  co_return co_await envd->agent.pool.run(std::move(work));
}

Result<> remove_all(const std::string& path) {
  auto removed = remove_entry(path, true);
  if (!removed && removed.error().kind == ErrorKind::not_found) return {};
  return removed;
}

Task<json::object> remove_path(EnvdPtr envd, http::Exchange& exchange, const json::object& request) {
  CO_TRY(const Place at, place(*envd, exchange, request));
  auto work = [&at] { return remove_all(at.path); };
  CO_TRY_VOID(co_await envd->agent.pool.run(std::move(work)));
  co_return json::object();
}

}  // namespace

void add_envd_filesystem_routes(http::Router& router, const EnvdPtr& envd) {
  const auto add = [&](std::string_view method, Task<json::object> (*handler)(EnvdPtr, http::Exchange&, const json::object&)) {
    connect::add_unary(router, fmt::format("/filesystem.Filesystem/{}", method),
                       [envd, handler](http::Exchange& x, const json::object& request) { return handler(envd, x, request); });
  };
  add("Stat", stat_path);
  add("MakeDir", make_dir);
  add("Move", move_path);
  add("ListDir", list_dir);
  add("Remove", remove_path);
}

}  // namespace space::agent
