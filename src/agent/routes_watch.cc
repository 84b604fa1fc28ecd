#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/entry.h"
#include "agent/file_request.h"
#include "agent/routes.h"
#include "agent/watch.h"
#include "http/sse.h"

namespace space::agent {
namespace {

constexpr auto kWatchKeepalive = std::chrono::seconds(15);

http::SseEvent to_sse(const WatchEvent& event) {
  json::object data;
  put_bytes(data, "path", event.path);
  if (event.change == Change::moved) put_bytes(data, "from", event.from);
  data["kind"] = event.folder ? "dir" : "file";
  return {{}, std::string(to_string(event.change)), json::serialize(data)};
}

Task<> send_events(Agent& agent, const Identity& identity, http::Exchange& exchange, Watcher& watcher) {
  http::SseWriter writer(exchange);
  CO_TRY_VOID(co_await writer.start());
  CO_TRY(Fd copy, watcher.descriptor().duplicate());
  asio::posix::stream_descriptor readable(agent.executor, copy.release());
  using namespace asio::experimental::awaitable_operators;
  while (!watcher.ended()) {
    const auto woken = co_await (readable.async_wait(asio::posix::stream_descriptor::wait_read, asio::as_tuple(asio::use_awaitable)) ||
                                 sleep_for(kWatchKeepalive));
    if (woken.index() == 1) {
      CO_TRY_VOID(co_await writer.keepalive());
      continue;
    }
    auto work = [&watcher]() -> Result<std::vector<WatchEvent>> { return watcher.digest(); };
    CO_TRY(const std::vector<WatchEvent> events, co_await as_user(agent, identity, std::move(work)));
    for (const WatchEvent& event : events) {
      const http::SseEvent one = to_sse(event);
      CO_TRY_VOID(co_await writer.send(one));
    }
  }
  co_return co_await writer.finish();
}

Task<> get_watch(Agent& agent, http::Exchange& exchange) {
  CO_TRY(FileRequest request, file_request(agent, exchange));
  CO_TRY(const bool recursive, query_flag(exchange.target(), "recursive"));
  auto work = [path = request.path, recursive] { return Watcher::open(path, recursive); };
  CO_TRY(Watcher watcher, co_await as_user(agent, request.identity, std::move(work)));
  co_return co_await http::until_disconnected(exchange, send_events(agent, request.identity, exchange, watcher));
}

}  // namespace

void add_watch_routes(http::Router& router, Agent& agent) {
  router.add("GET", "/v1/files/watch", [&agent](http::Exchange& x) { return get_watch(agent, x); });
}

}  // namespace space::agent
