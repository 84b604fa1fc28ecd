#include <fcntl.h>
#include <fmt/format.h>

#include "agent/file_request.h"
#include "agent/routes.h"
#include "agent/tree.h"
#include "base/encoding.h"

namespace space::agent {
namespace {

constexpr std::uint64_t kMostEntries = 5000, kUsualEntries = 1000;
constexpr std::uint64_t kMostDepth = 32;

// A path in a JSON body: as text under `name`, or for bytes that are not UTF-8 in base64 under `name`_base64.
std::string json_path(JsonReader& r, std::string_view name) {
  const std::string encoded_name = fmt::format("{}_base64", name);
  if (!r.has(encoded_name)) return r.text(name, 1, 4095);
  auto bytes = base64_decode(r.text(encoded_name, 1, 8192));
  if (!bytes) r.reject(encoded_name, "must be base64");
  return bytes.value_or("");
}

mode_t json_mode(JsonReader& r, mode_t absent) {
  const auto text = r.optional_text("mode", 4);
  if (!text) return absent;
  mode_t mode = 0;
  for (const char c : *text) {
    if (c < '0' || c > '7') r.reject("mode", "must be an octal number such as 0755");
    mode = mode * 8 + static_cast<mode_t>(c - '0');
  }
  return mode;
}

Task<> get_stat(Agent& agent, http::Exchange& exchange) {
  CO_TRY(FileRequest request, file_request(agent, exchange));
  auto work = [path = request.path] { return read_entry(AT_FDCWD, path.c_str(), path); };
  CO_TRY(const Entry entry, co_await as_user(agent, request.identity, std::move(work)));
  co_return co_await reply_json(exchange, 200, to_json(entry, *request.accounts));
}

Task<> get_list(Agent& agent, http::Exchange& exchange) {
  CO_TRY(FileRequest request, file_request(agent, exchange));
  ListRequest list;
  list.path = request.path;
  CO_TRY(const std::uint64_t depth, query_number(exchange.target(), "depth", kMostDepth, 1));
  CO_TRY(const std::uint64_t limit, query_number(exchange.target(), "limit", kMostEntries, kUsualEntries));
  if (depth < 1 || limit < 1) co_return fail(ErrorKind::invalid_argument, "invalid_query", "depth and limit start at 1", "send 1 or more");
  list.depth = static_cast<int>(depth);
  list.limit = limit;
  list.after = exchange.target().query_value("after").value_or("");
  auto work = [list = std::move(list)] { return list_folder(list); };
  CO_TRY(const Listing listing, co_await as_user(agent, request.identity, std::move(work)));
  json::array entries;
  entries.reserve(listing.entries.size());
  for (const Entry& entry : listing.entries) entries.push_back(to_json(entry, *request.accounts));
  json::object answer{{"entries", std::move(entries)}, {"next", nullptr}};
  if (listing.next) answer["next"] = *listing.next;
  co_return co_await reply_json(exchange, 200, std::move(answer));
}

Task<> post_mkdir(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const json::object object, co_await read_json(exchange));
  JsonReader r(object);
  r.ignore_unknown();
  const std::string path = json_path(r, "path");
  const std::string user = r.text("user", 0, 256, "");
  const mode_t mode = json_mode(r, 0755);
  const bool parents = r.boolean("parents", true);
  CO_TRY_VOID(r.done());
  CO_TRY(FileRequest request, file_request(agent, user, path));
  auto work = [path = request.path, mode, parents] { return make_folder(path, mode, parents); };
  CO_TRY(const MadeFolder made, co_await as_user(agent, request.identity, std::move(work)));
  co_return co_await reply_json(exchange, made.created ? 201 : 200, to_json(made.entry, *request.accounts));
}

Task<> post_move(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const json::object object, co_await read_json(exchange));
  JsonReader r(object);
  r.ignore_unknown();
  const std::string from = json_path(r, "from");
  const std::string to = json_path(r, "to");
  const std::string user = r.text("user", 0, 256, "");
  const bool overwrite = r.boolean("overwrite", false);
  const bool parents = r.boolean("parents", false);
  CO_TRY_VOID(r.done());
  CO_TRY(FileRequest source, file_request(agent, user, from));
  CO_TRY(FileRequest target, file_request(agent, user, to));
  auto work = [from = source.path, to = target.path, overwrite, parents] { return move_entry(from, to, overwrite, parents); };
  CO_TRY(const Entry entry, co_await as_user(agent, source.identity, std::move(work)));
  co_return co_await reply_json(exchange, 200, to_json(entry, *source.accounts));
}

Task<> delete_entry(Agent& agent, http::Exchange& exchange) {
  CO_TRY(FileRequest request, file_request(agent, exchange));
  CO_TRY(const bool recursive, query_flag(exchange.target(), "recursive"));
  auto work = [path = request.path, recursive] { return remove_entry(path, recursive); };
  CO_TRY_VOID(co_await as_user(agent, request.identity, std::move(work)));
  co_return co_await reply_json(exchange, 200, {});
}

}  // namespace

Result<FileRequest> file_request(Agent& agent, std::string_view user, std::string_view path) {
  FileRequest request;
  TRY(request.user, agent.find_user(user));
  request.accounts = agent.accounts.current();
  request.identity = request.accounts->identity(request.user);
  TRY(request.path, absolute_path(path, request.user));
  return request;
}

Result<FileRequest> file_request(Agent& agent, const http::Exchange& exchange) {
  const http::Target& target = exchange.target();
  return file_request(agent, target.query_value("user").value_or(""), target.query_value("path").value_or(""));
}

void add_file_routes(http::Router& router, Agent& agent) {
  router.add("GET", "/v1/files/stat", [&agent](http::Exchange& x) { return get_stat(agent, x); });
  router.add("GET", "/v1/files/list", [&agent](http::Exchange& x) { return get_list(agent, x); });
  router.add("POST", "/v1/files/mkdir", [&agent](http::Exchange& x) { return post_mkdir(agent, x); });
  router.add("POST", "/v1/files/move", [&agent](http::Exchange& x) { return post_move(agent, x); });
  router.add("DELETE", "/v1/files", [&agent](http::Exchange& x) { return delete_entry(agent, x); });
  add_content_routes(router, agent);
  add_watch_routes(router, agent);
}

}  // namespace space::agent
