#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/random.h"
#include "http/sse.h"

namespace space::api {
namespace {

using control::Operation;
using std::chrono::seconds;

Result<std::string> operation_id(const http::Exchange& exchange) {
  const std::string& id = exchange.param("operation");
  if (!is_id(id))
    return fail(ErrorKind::not_found, "operation_not_found", "there is no such operation", "list what there is: GET /v1/operations");
  return id;
}

Task<> send(http::Exchange& exchange, Operation operation) {
  co_return co_await exchange.reply(http::json_response(200, json::serialize(render(operation))));
}

Task<> wait_and_send(Services& services, http::Exchange& exchange, std::string id, seconds wait) {
  CO_TRY(Operation operation, co_await services.engine.wait(tenant_of(exchange), std::move(id), wait));
  co_return co_await send(exchange, std::move(operation));
}

Task<> get_operation(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, operation_id(exchange));
  exchange.attributes["operation"] = id;
  Query query(exchange.target());
  const seconds wait(query.number("wait", 0, kLongestWait.count(), 0));
  CO_TRY_VOID(query.done());
  if (wait.count() > 0) co_return co_await http::until_disconnected(exchange, wait_and_send(services, exchange, std::move(id), wait));
  CO_TRY(Operation operation, co_await services.engine.find(tenant_of(exchange), std::move(id)));
  co_return co_await send(exchange, std::move(operation));
}

Task<> list(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  control::Page page = read_page(query);
  control::OperationFilter filter;
  filter.sandbox = query.text("sandbox", 64);
  for (const std::string& name : query.list("state")) {
    const auto state = control::operation_state(name);
    if (!state) query.reject("state", "must be pending, running, succeeded, failed or cancelled");
    filter.states.push_back(state.value_or(control::OperationState::pending));
  }
  CO_TRY_VOID(query.done());
  const std::size_t limit = page.limit++;
  CO_TRY(const auto operations, co_await services.store.list_operations(tenant_of(exchange), page, std::move(filter)));
  json::array items;
  for (std::size_t i = 0; i < std::min(limit, operations.size()); ++i) items.push_back(render(operations[i]));
  json::object out{{"operations", std::move(items)}, {"next", nullptr}};
  if (operations.size() > limit) out["next"] = write_cursor(operations[limit - 1].sequence);
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> cancel(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, operation_id(exchange));
  exchange.attributes["operation"] = id;
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader reader(body);
  CO_TRY_VOID(reader.done());
  CO_TRY(const Operation operation, co_await services.engine.cancel(tenant_of(exchange), std::move(id)));
  co_return co_await exchange.reply(http::json_response(202, json::serialize(render(operation))));
}

// pending, running, the end: an event each, numbered so, until the end.
int stage(control::OperationState state) {
  return state == control::OperationState::pending ? 1 : state == control::OperationState::running ? 2 : 3;
}

Task<> stream(Services& services, http::Exchange& exchange, Operation operation, int seen) {
  http::SseWriter writer(exchange);
  CO_TRY_VOID(co_await writer.start());
  while (!services.stopping) {
    if (stage(operation.state) > seen) {
      seen = stage(operation.state);
      const http::SseEvent event{std::to_string(seen), "operation", json::serialize(render(operation))};
      CO_TRY_VOID(co_await writer.send(event));
    }
    if (is_finished(operation.state)) break;
    const auto before = operation.state;
    auto next = co_await services.engine.wait(tenant_of(exchange), operation.id, seconds(15), before);
    if (!next) break;
    operation = std::move(*next);
    if (operation.state == before) CO_TRY_VOID(co_await writer.keepalive());
  }
  co_return co_await writer.finish();
}

Task<> events(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, operation_id(exchange));
  exchange.attributes["operation"] = id;
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const auto last, read_event_id(exchange.headers().get("Last-Event-ID")));
  const std::int64_t seen = last.value_or(0);
  if (seen > 3)
    co_return fail(ErrorKind::invalid_argument, "invalid_event_id", "an operation's events have the ids 1, 2 and 3",
                   "send the id of the last one that came");
  CO_TRY(Operation operation, co_await services.engine.find(tenant_of(exchange), std::move(id)));
  ++services.counters.streams;
  auto result = co_await http::until_disconnected(exchange, stream(services, exchange, std::move(operation), static_cast<int>(seen)));
  --services.counters.streams;
  co_return result;
}

}  // namespace

void add_operation_routes(Routes& routes) {
  routes.add("GET", "/v1/operations", Access::key, Repeat::safe, list);
  routes.add("GET", "/v1/operations/{operation}", Access::key, Repeat::safe, get_operation);
  routes.add("POST", "/v1/operations/{operation}/cancel", Access::key, Repeat::kept, cancel);
  routes.add("GET", "/v1/operations/{operation}/events", Access::key, Repeat::safe, events);
}

}  // namespace space::api
