// Volumes: what E2B's content API does in the one that this guest is (/v1/volume/…), and those of others that it has mounted
// (/v1/mounts). Paths, owners and modes come from a client and are checked here.
#include <fmt/format.h>

#include "agent/agent.h"
#include "agent/routes.h"
#include "agent/send_file.h"
#include "agent/volume.h"

namespace space::agent {
namespace {

constexpr std::size_t kVolumePiece = 256 << 10;
constexpr std::uint64_t kMostId = 0xFFFFFFFEU, kMostMode = 07777, kMostVolumeDepth = 32;
constexpr std::size_t kMostMounts = 16;

Result<std::string> path_of(const http::Exchange& exchange) { return volume_path(exchange.target().query_value("path").value_or("")); }

Result<std::optional<std::uint32_t>> optional_number(const http::Target& target, std::string_view name, std::uint64_t most) {
  if (!target.query_value(name)) return std::nullopt;
  TRY(const std::uint64_t value, query_number(target, name, most, 0));
  return static_cast<std::uint32_t>(value);
}

Result<Ownership> ownership(const http::Target& target) {
  Ownership of;
  TRY(of.uid, optional_number(target, "uid", kMostId));
  TRY(of.gid, optional_number(target, "gid", kMostId));
  TRY(of.mode, optional_number(target, "mode", kMostMode));
  return of;
}

// "true" and "false", as E2B's clients write it.
Result<bool> forced(const http::Target& target) {
  const std::string text = target.query_value("force").value_or("false");
  if (text != "true" && text != "false") return fail(ErrorKind::invalid_argument, "invalid_query", "force must be true or false");
  return text == "true";
}

// `work`, with the volume, on the pool.
template <class F>
auto in_volume(Agent& agent, F work) -> asio::awaitable<std::invoke_result_t<F, const Volume&>> {
  auto job = [work = std::move(work)]() mutable -> std::invoke_result_t<F, const Volume&> {
    TRY(const Volume volume, Volume::open());
    return work(volume);
  };
  co_return co_await agent.pool.run(std::move(job));
}

Task<> get_volume_stat(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  auto work = [path](const Volume& volume) { return volume.stat(path); };
  CO_TRY(const Entry entry, co_await in_volume(agent, std::move(work)));
  co_return co_await reply_json(exchange, 200, volume_entry(entry));
}

Task<> change(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const auto narrow = [](std::optional<std::int64_t> value) {
    return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
  };
  Ownership to;
  to.uid = narrow(r.optional_number("uid", 0, kMostId));
  to.gid = narrow(r.optional_number("gid", 0, kMostId));
  to.mode = narrow(r.optional_number("mode", 0, kMostMode));
  CO_TRY_VOID(r.done());
  auto work = [path, to](const Volume& volume) { return volume.change(path, to); };
  CO_TRY(const Entry entry, co_await in_volume(agent, std::move(work)));
  co_return co_await reply_json(exchange, 200, volume_entry(entry));
}

Task<> remove(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  auto work = [path](const Volume& volume) { return volume.remove(path); };
  CO_TRY_VOID(co_await in_volume(agent, std::move(work)));
  co_return co_await reply_json(exchange, 200, {});
}

Task<> list(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  CO_TRY(const std::uint64_t depth, query_number(exchange.target(), "depth", kMostVolumeDepth, 1));
  if (depth < 1) co_return fail(ErrorKind::invalid_argument, "invalid_query", "depth starts at 1", "send 1 or more");
  auto work = [path, depth](const Volume& volume) { return volume.list(path, static_cast<int>(depth)); };
  CO_TRY(const std::vector<Entry> entries, co_await in_volume(agent, std::move(work)));
  json::array out;
  for (const Entry& entry : entries) out.push_back(volume_entry(entry));
  json::object answer{{"entries", std::move(out)}};
  co_return co_await reply_json(exchange, 200, std::move(answer));
}

Task<> make_folder(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  CO_TRY(const Ownership of, ownership(exchange.target()));
  CO_TRY(const bool parents, forced(exchange.target()));
  auto work = [path, of, parents](const Volume& volume) { return volume.make_folder(path, of, parents); };
  CO_TRY(const Entry entry, co_await in_volume(agent, std::move(work)));
  co_return co_await reply_json(exchange, 201, volume_entry(entry));
}

Task<> read(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  auto work = [path](const Volume& volume) { return volume.read(path); };
  CO_TRY(const OpenedFile opened, co_await in_volume(agent, std::move(work)));
  http::Headers headers{{"Content-Type", "application/octet-stream"}};
  co_return co_await send_file(agent, exchange, opened, std::move(headers));
}

Task<> write(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::string path, path_of(exchange));
  CO_TRY(const Ownership of, ownership(exchange.target()));
  CO_TRY(const bool parents, forced(exchange.target()));
  auto begin = [path, of, parents](const Volume& volume) { return volume.write(path, of, parents); };
  CO_TRY(Volume::Writing writing, co_await in_volume(agent, std::move(begin)));
  std::vector<std::byte> piece(kVolumePiece);
  for (;;) {
    CO_TRY(const std::size_t size, co_await exchange.read(piece));
    if (size == 0) break;
    auto put = [&writing, bytes = std::span(piece).first(size)] { return writing.write(bytes); };
    CO_TRY_VOID(co_await agent.pool.run(std::move(put)));
  }
  auto commit = [&writing] { return writing.commit(); };
  CO_TRY(const Entry entry, co_await agent.pool.run(std::move(commit)));
  co_return co_await reply_json(exchange, 201, volume_entry(entry));
}

// `GET /v1/volume/link?client=NAME` with `Upgrade: fuse`: the requests of one mount.
Task<> serve_mount(Agent& agent, http::Exchange& exchange) {
  const std::string client = exchange.target().query_value("client").value_or("");
  if (client.empty() || client.size() > 128)
    co_return fail(ErrorKind::invalid_argument, "invalid_query", "client must have 1 to 128 bytes");
  auto there = [](const Volume&) -> Result<> { return {}; };
  CO_TRY_VOID(co_await in_volume(agent, std::move(there)));
  CO_TRY(auto wire, VolumeWire::take(exchange, ""));
  auto served = agent.volume.serve(wire, client);
  if (!served) wire->close();
  co_return Result<>();
}

// `PUT /v1/mounts {"paths":[…]}`: exactly these are mounted from now on.
Task<> set_mounts(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const std::vector<std::string> given = r.texts("paths", kMostMounts, 4095);
  CO_TRY_VOID(r.done());
  std::vector<std::string> paths;
  for (const std::string& one : given) {
    CO_TRY(paths.emplace_back(), mount_path(one));
  }
  auto set = [&agent, paths] { return agent.mounts.set(paths); };
  CO_TRY_VOID(co_await agent.pool.run(std::move(set)));
  co_return co_await reply_json(exchange, 200, {});
}

// `GET /v1/mounts/link?path=PATH` with `Upgrade: fuse`: the way of a mount's requests to its volume. `Space-Mount` names the mounting.
Task<> link_mount(Agent& agent, http::Exchange& exchange) {
  const auto mount = agent.mounts.find(exchange.target().query_value("path").value_or(""));
  // One that somebody here has unmounted counts as none: the host then has it mounted anew.
  if (!mount || mount->over()) co_return fail(ErrorKind::not_found, "mount_not_found", "no volume is mounted there", "mount it first");
  CO_TRY(auto wire, VolumeWire::take(exchange, fmt::format("Space-Mount: {}\r\n", mount->id())));
  mount->use(std::move(wire));
  co_return Result<>();
}

}  // namespace

void add_volume_routes(http::Router& router, Agent& agent) {
  const auto add = [&](const char* method, const char* path, Task<> (*handler)(Agent&, http::Exchange&)) {
    router.add(method, path, [&agent, handler](http::Exchange& x) { return handler(agent, x); });
  };
  add("GET", "/v1/volume/path", get_volume_stat);
  add("PATCH", "/v1/volume/path", change);
  add("DELETE", "/v1/volume/path", remove);
  add("GET", "/v1/volume/dir", list);
  add("POST", "/v1/volume/dir", make_folder);
  add("GET", "/v1/volume/file", read);
  add("PUT", "/v1/volume/file", write);
  add("GET", "/v1/volume/link", serve_mount);
  add("PUT", "/v1/mounts", set_mounts);
  add("GET", "/v1/mounts/link", link_mount);
}

}  // namespace space::agent
