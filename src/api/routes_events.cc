// The tenant's events as they happen, and again from any event that is still kept.
#include <fmt/format.h>

#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "http/sse.h"

namespace space::api {
namespace {

constexpr std::size_t kBatch = 200;
constexpr std::chrono::seconds kKeepalive{15};

Task<> stream(Services& services, http::Exchange& exchange, std::int64_t after) {
  http::SseWriter writer(exchange);
  CO_TRY_VOID(co_await writer.start());
  CO_TRY_VOID(co_await writer.keepalive());  // so that the client sees at once that it is connected
  const std::string tenant = tenant_of(exchange);
  while (!services.stopping) {
    const auto count = services.appended_count;
    CO_TRY(const auto events, co_await services.store.events_after(tenant, after, kBatch));
    for (const control::Event& event : events) {
      const http::SseEvent out{std::to_string(event.sequence), event.type, json::serialize(render(event))};
      CO_TRY_VOID(co_await writer.send(out));
      after = event.sequence;
    }
    if (events.size() == kBatch || count != services.appended_count || services.stopping) continue;
    if (!co_await services.appended.wait_for(kKeepalive)) CO_TRY_VOID(co_await writer.keepalive());
  }
  co_return co_await writer.finish();
}

Task<> events(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  std::string from = query.text("after", 32);
  CO_TRY_VOID(query.done());
  if (const auto header = exchange.headers().get("Last-Event-ID"); !header.empty())
    from = header;  // a reconnecting client's word goes first
  CO_TRY(const control::EventWindow window, co_await services.store.event_window());
  std::int64_t after = window.last;  // without a position: what happens from now on
  CO_TRY(const auto position, read_event_id(from));
  if (position) {
    after = *position == 0 ? window.first - 1 : *position;  // 0: all that is kept
    if (after < window.first - 1 || after > window.last) {
      const Error outside{ErrorKind::conflict, "outside_window", fmt::format("events {} to {} are kept", window.first, window.last),
                          "read the present state (GET /v1/sandboxes), then go on from `last`"};
      const json::object more{{"first", std::to_string(window.first)}, {"last", std::to_string(window.last)}};
      co_return co_await exchange.reply(problem_with(outside, more));
    }
  }
  ++services.counters.streams;
  auto result = co_await http::until_disconnected(exchange, stream(services, exchange, after));
  --services.counters.streams;
  co_return result;
}

}  // namespace

void add_event_routes(Routes& routes) { routes.add("GET", "/v1/events", Access::key, Repeat::safe, events); }

}  // namespace space::api
