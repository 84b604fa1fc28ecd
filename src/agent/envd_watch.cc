// E2B's watchers: a stream of events, and the form in which a client comes back and asks.
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <charconv>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "agent/envd.h"
#include "agent/envd_connect.h"
#include "agent/entry.h"
#include "agent/watch.h"
#include "base/random.h"

namespace space::agent {

// A watcher whose events wait for their client, who may never come: bounded.
class PolledWatcher {
 public:
  static constexpr std::size_t kMostEvents = 10'000;
  std::vector<json::object> events;
  std::optional<Error> failed;
  bool removed = false;
  Signal changed;
  explicit PolledWatcher(asio::any_io_executor executor) : changed(std::move(executor)) {}
};

namespace {

using EnvdPtr = std::shared_ptr<Envd>;
using Clock = std::chrono::steady_clock;
using Events = std::vector<json::object>;

struct Request {
  std::string path;
  std::shared_ptr<const Accounts> accounts;
  bool recursive = false, entries = false, network = false;
};

bool flag(JsonReader& r, std::string_view name, std::string_view other) {
  return r.has(name) ? r.boolean(name, false) : r.boolean(other, false);
}

Result<Request> read_request(Envd& envd, const http::Exchange& exchange, const json::object& request) {
  JsonReader r(request);
  r.ignore_unknown();
  const std::string path = r.text("path", 0, 4095, "");
  Request out;
  out.recursive = r.boolean("recursive", false);
  out.entries = flag(r, "includeEntry", "include_entry");
  out.network = flag(r, "allowNetworkMounts", "allow_network_mounts");
  TRY_VOID(r.done());
  TRY(const EnvdUser who, envd_user(envd.agent, exchange));
  out.accounts = who.accounts;
  TRY(out.path, envd_path(envd.agent, who.user, path));
  while (out.path.size() > 1 && out.path.ends_with('/')) out.path.pop_back();
  return out;
}

// inotify tells nothing of what other machines do to a network filesystem.
bool is_network(const std::string& path) {
  constexpr long kCifs = 0xFF534D42, kSmb2 = 0xFE534D42, kFuse = 0x65735546;
  struct statfs fs = {};
  if (::statfs(path.c_str(), &fs) != 0) return false;
  const long type = static_cast<long>(fs.f_type);
  return type == NFS_SUPER_MAGIC || type == SMB_SUPER_MAGIC || type == kCifs || type == kSmb2 || type == kFuse;
}

Result<Watcher> open_watcher(const Request& request) {
  struct stat st = {};
  if (::stat(request.path.c_str(), &st) != 0)
    return fail(ErrorKind::not_found, "not_found", fmt::format("path {} not found", request.path));
  if (!S_ISDIR(st.st_mode))
    return fail(ErrorKind::invalid_argument, "invalid_argument", fmt::format("path {} not a directory", request.path));
  if (!request.network && is_network(request.path))
    return fail(ErrorKind::invalid_argument, "invalid_argument",
                fmt::format("path {} is on a network mount: its changes may go unseen", request.path),
                "allow network mounts if that is fine");
  return Watcher::open(request.path, request.recursive);
}

// Blocks: on the pool.
void add_event(Events& out, const Request& request, std::string_view type, const std::string& path) {
  const std::size_t root = request.path == "/" ? 1 : request.path.size() + 1;
  if (path.size() <= root) return;  // about the folder itself
  json::object event;
  put_bytes(event, "name", std::string_view(path).substr(root));
  event["type"] = type;
  if (request.entries && type != "EVENT_TYPE_REMOVE" && type != "EVENT_TYPE_RENAME")
    if (auto entry = envd_entry(path, *request.accounts)) event["entry"] = std::move(*entry);
  out.push_back(std::move(event));
}

Result<Events> digest(Watcher& watcher, const Request& request) {
  Events out;
  for (const WatchEvent& event : watcher.digest()) {
    switch (event.change) {
      case Change::created:
        add_event(out, request, "EVENT_TYPE_CREATE", event.path);
        break;
      case Change::modified:
        add_event(out, request, "EVENT_TYPE_WRITE", event.path);
        break;
      case Change::removed:
        add_event(out, request, "EVENT_TYPE_REMOVE", event.path);
        break;
      case Change::attributes:
        add_event(out, request, "EVENT_TYPE_CHMOD", event.path);
        break;
      case Change::moved:
        add_event(out, request, "EVENT_TYPE_RENAME", event.from);
        add_event(out, request, "EVENT_TYPE_CREATE", event.path);
        break;
      case Change::overflow:
        return fail(ErrorKind::resource_exhausted, "resource_exhausted",
                    fmt::format("too much happens below {}: events were lost", request.path), "list it, then watch again");
    }
  }
  return out;
}

std::int64_t header_number(const http::Exchange& exchange, std::string_view name) {
  const std::string_view text = exchange.headers().get(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

Task<> watch(EnvdPtr envd, http::Exchange& exchange, const json::object& body, connect::StreamWriter& writer) {
  CO_TRY(const Request request, read_request(*envd, exchange, body));
  auto open = [&request] { return open_watcher(request); };
  CO_TRY(Watcher watcher, co_await envd->agent.pool.run(std::move(open)));
  CO_TRY(Fd copy, watcher.descriptor().duplicate());
  asio::posix::stream_descriptor readable(envd->agent.executor, copy.release());
  writer.add(R"({"start":{}})");
  CO_TRY_VOID(co_await writer.flush());
  const std::int64_t asked = header_number(exchange, "Keepalive-Ping-Interval"), limit = header_number(exchange, "Connect-Timeout-Ms");
  const auto keepalive = std::chrono::seconds(asked > 0 && asked < 3600 ? asked : 90);
  const auto until = limit > 0 && limit < 31LL * 86'400'000 ? Clock::now() + std::chrono::milliseconds(limit) : Clock::time_point::max();
  using namespace asio::experimental::awaitable_operators;
  while (!watcher.ended()) {
    const auto now = Clock::now();
    if (now >= until)
      co_return fail(ErrorKind::deadline_exceeded, "deadline_exceeded", "the folder was watched for as long as was asked for");
    const auto wait = std::min(std::chrono::duration_cast<std::chrono::milliseconds>(keepalive),
                               std::chrono::ceil<std::chrono::milliseconds>(until - now));
    const auto woken =
        co_await (readable.async_wait(asio::posix::stream_descriptor::wait_read, asio::as_tuple(asio::use_awaitable)) || sleep_for(wait));
    if (woken.index() == 1) {
      writer.add(R"({"keepalive":{}})");
      CO_TRY_VOID(co_await writer.flush());
      continue;
    }
    auto work = [&] { return digest(watcher, request); };
    CO_TRY(const Events events, co_await envd->agent.pool.run(std::move(work)));
    for (const json::object& event : events) writer.add(fmt::format(R"({{"filesystem":{}}})", json::serialize(event)));
    if (!events.empty()) CO_TRY_VOID(co_await writer.flush());
  }
  co_return Result<>();
}

// Fills a polled watcher until it is removed or fails.
asio::awaitable<void> collect(EnvdPtr envd, std::shared_ptr<PolledWatcher> polled, Request request, std::shared_ptr<Watcher> watcher) {
  using namespace asio::experimental::awaitable_operators;
  auto copy = watcher->descriptor().duplicate();
  if (!copy) co_return;
  asio::posix::stream_descriptor readable(envd->agent.executor, copy->release());
  while (!polled->removed && !polled->failed && !watcher->ended()) {
    const auto woken = co_await (readable.async_wait(asio::posix::stream_descriptor::wait_read, asio::as_tuple(asio::use_awaitable)) ||
                                 polled->changed.wait());
    if (woken.index() == 1) continue;
    auto work = [&] { return digest(*watcher, request); };
    auto events = co_await envd->agent.pool.run(std::move(work));
    if (!events) {
      polled->failed = events.error();
    } else {
      std::move(events->begin(), events->end(), std::back_inserter(polled->events));
      if (polled->events.size() > PolledWatcher::kMostEvents)
        polled->failed = Error{ErrorKind::resource_exhausted, "resource_exhausted", "nobody asked for the events of this watcher in time",
                               "make another one and ask more often"};
    }
  }
}

Task<json::object> create(EnvdPtr envd, http::Exchange& exchange, const json::object& body) {
  if (envd->watchers.size() >= Envd::kMostWatchers)
    co_return fail(ErrorKind::resource_exhausted, "resource_exhausted", fmt::format("there are {} watchers already", envd->watchers.size()),
                   "remove some first");
  CO_TRY(Request request, read_request(*envd, exchange, body));
  auto open = [&request] { return open_watcher(request); };
  CO_TRY(Watcher opened, co_await envd->agent.pool.run(std::move(open)));
  const auto polled = std::make_shared<PolledWatcher>(envd->agent.executor);
  const std::string id = new_id();
  envd->watchers.emplace(id, polled);
  spawn(envd->agent.executor, collect(envd, polled, std::move(request), std::make_shared<Watcher>(std::move(opened))));
  co_return json::object{{"watcherId", id}};
}

Result<std::string> watcher_id(const Envd& envd, const json::object& body) {
  JsonReader r(body);
  r.ignore_unknown();
  std::string id = r.text(r.has("watcherId") ? "watcherId" : "watcher_id", 0, 128, "");
  TRY_VOID(r.done());
  if (!envd.watchers.contains(id)) return fail(ErrorKind::not_found, "not_found", fmt::format("watcher with id {} not found", id));
  return id;
}

Result<json::object> take_events(Envd& envd, const json::object& body) {
  TRY(const std::string id, watcher_id(envd, body));
  PolledWatcher& polled = *envd.watchers.at(id);
  if (polled.failed) return tl::unexpected(*polled.failed);
  json::array events;
  for (json::object& event : std::exchange(polled.events, {})) events.push_back(std::move(event));
  return json::object{{"events", std::move(events)}};
}

Result<json::object> remove(Envd& envd, const json::object& body) {
  TRY(const std::string id, watcher_id(envd, body));
  const auto polled = envd.watchers.at(id);
  polled->removed = true;
  polled->changed.notify_all();
  envd.watchers.erase(id);
  return json::object();
}

}  // namespace

void add_envd_watch_routes(http::Router& router, const EnvdPtr& envd) {
  const std::string service = "/filesystem.Filesystem/";
  using json::object;
  connect::add_server_stream(router, service + "WatchDir", [envd](http::Exchange& x, const object& request, connect::StreamWriter& w) {
    return watch(envd, x, request, w);
  });
  connect::add_unary(router, service + "CreateWatcher",
                     [envd](http::Exchange& x, const object& request) { return create(envd, x, request); });
  connect::add_unary(router, service + "GetWatcherEvents",
                     [envd](http::Exchange&, const object& request) -> Task<object> { co_return take_events(*envd, request); });
  connect::add_unary(router, service + "RemoveWatcher",
                     [envd](http::Exchange&, const object& request) -> Task<object> { co_return remove(*envd, request); });
}

}  // namespace space::agent
