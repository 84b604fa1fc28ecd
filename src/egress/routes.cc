#include "egress/routes.h"

#include "base/log.h"
#include "base/random.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestQuestion = 64 << 10;

Result<std::string> sandbox_of(const http::Exchange& exchange) {
  const std::string& id = exchange.param("id");
  if (is_id(id)) return id;
  return fail(ErrorKind::not_found, "sandbox_not_found", "the gateway knows no such sandbox");
}

Result<std::string> change_of(const http::Exchange& exchange) {
  const std::string& change = exchange.param("change");
  if (is_id(change)) return change;
  return fail(ErrorKind::invalid_argument, "invalid_change", "a change is named by an id");
}

// The changes that these settings bring to their end; not a part of the settings.
Result<std::vector<std::string>> take_settles(json::object& body) {
  std::vector<std::string> out;
  const auto* value = body.if_contains("settles");
  if (!value) return out;
  const auto wrong = [] { return fail(ErrorKind::invalid_argument, "invalid_change", "settles must be a list of at most 64 ids"); };
  if (!value->is_array() || value->get_array().size() > 64) return wrong();
  for (const json::value& one : value->get_array()) {
    if (!one.is_string() || !is_id(std::string(one.get_string()))) return wrong();
    out.emplace_back(one.get_string());
  }
  body.erase("settles");
  return out;
}

}  // namespace

http::Router::Middleware peer_check(std::vector<uid_t> uids) {
  return [uids = std::move(uids)](http::Exchange& exchange, const http::Handler& next) -> Task<> {
    const auto& peer = exchange.peer().credentials;
    if (peer && (peer->uid == 0 || std::find(uids.begin(), uids.end(), peer->uid) != uids.end())) co_return co_await next(exchange);
    log::warn("peer.refused", {{"uid", peer ? static_cast<std::int64_t>(peer->uid) : -1}});
    co_return fail(ErrorKind::permission_denied, "peer_refused", "this socket serves the api and node roles alone", "use the public API");
  };
}

Task<> no_content(http::Exchange& exchange) {
  http::Response response;
  response.status = 204;
  co_return co_await exchange.reply(std::move(response));
}

Task<> reply_json(http::Exchange& exchange, int status, json::value body) {
  http::Response response = http::json_response(status, json::serialize(body));
  co_return co_await exchange.reply(std::move(response));
}

Task<json::object> read_object(http::Exchange& exchange, std::size_t limit) {
  CO_TRY(const std::string text, co_await exchange.read_body(limit));
  co_return parse_json_object(text.empty() ? "{}" : text, limit);
}

void add_sandbox_routes(http::Router& router, Parent& parent) {
  router.add("GET", "/info", [&parent](http::Exchange& exchange) -> Task<> {
    json::object body = parent.info();
    co_return co_await reply_json(exchange, 200, std::move(body));
  });
  router.add("GET", "/metrics", [&parent](http::Exchange& exchange) -> Task<> {
    http::Response response;
    response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    response.body = parent.figures();
    co_return co_await exchange.reply(std::move(response));
  });
  router.add("GET", "/sandboxes", [&parent](http::Exchange& exchange) -> Task<> {
    json::object body{{"sandboxes", parent.states()}};
    co_return co_await reply_json(exchange, 200, std::move(body));
  });
  router.add("GET", "/traffic", [&parent](http::Exchange& exchange) -> Task<> {
    json::object body{{"sandboxes", parent.traffic()}};
    co_return co_await reply_json(exchange, 200, std::move(body));
  });
  router.add("GET", "/sandboxes/{id}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(json::object body, parent.state(id));
    co_return co_await reply_json(exchange, 200, std::move(body));
  });
  router.add("PUT", "/sandboxes/{id}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(json::object body, co_await read_object(exchange, kLongestSettings));
    CO_TRY(std::vector<std::string> settles, take_settles(body));
    CO_TRY(Settings settings, Settings::parse(body));
    const std::int64_t generation = settings.generation;
    CO_TRY_VOID(co_await parent.put(id, std::move(settings), std::move(settles)));
    json::object answer{{"sandbox", id}, {"generation", generation}};
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("PUT", "/sandboxes/{id}/changes/{change}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(std::string change, change_of(exchange));
    CO_TRY_VOID(co_await parent.announce(id, std::move(change)));
    co_return co_await no_content(exchange);
  });
  router.add("DELETE", "/sandboxes/{id}/changes/{change}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(std::string change, change_of(exchange));
    CO_TRY_VOID(co_await parent.withdraw(id, std::move(change)));
    co_return co_await no_content(exchange);
  });
  router.add("DELETE", "/sandboxes/{id}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY_VOID(co_await parent.remove(id));
    co_return co_await no_content(exchange);
  });
  router.add("GET", "/sandboxes/{id}/names", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(std::string id, sandbox_of(exchange));
    CO_TRY(json::object body, co_await parent.names(std::move(id)));
    co_return co_await reply_json(exchange, 200, std::move(body));
  });
  router.add("PUT", "/sandboxes/{id}/names", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(const json::object body, co_await read_object(exchange, kLongestSettings));
    CO_TRY(NameMap names, NameMap::parse(body));
    const std::size_t count = names.size();
    CO_TRY_VOID(co_await parent.put_names(id, std::move(names)));
    json::object answer{{"sandbox", id}, {"names", count}};
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("POST", "/sandboxes/{id}/refusals", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(const json::object body, co_await read_object(exchange, kLongestQuestion));
    JsonReader reader(body);
    wire::Refusals grown{};
    for (std::size_t i = 0; i < grown.size(); ++i)
      grown[i] = static_cast<std::uint64_t>(reader.number(wire::kRefusals[i], 0, INT64_MAX, 0));
    CO_TRY_VOID(reader.done());
    CO_TRY_VOID(parent.refused(id, grown));
    co_return co_await no_content(exchange);
  });
  router.add("POST", "/sandboxes/{id}/explain", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(const json::object body, co_await read_object(exchange, kLongestQuestion));
    JsonReader reader(body);
    const std::string method = reader.text("method", 1, 32, "GET"), url = reader.text("url", 1, 16384);
    CO_TRY_VOID(reader.done());
    CO_TRY(const Settings* settings, parent.settings(id));
    CO_TRY(json::object answer, parent.explain(*settings, method, url));
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("POST", "/explain", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(json::object body, co_await read_object(exchange, kLongestSettings));
    json::object document{{"tenant", "none"}, {"lineage", "nonenonenonenonenonenone"}, {"generation", 1}};
    for (const char* field : {"policy", "limits", "credentials"})
      if (const auto* value = body.if_contains(field)) document[field] = *value, body.erase(field);
    JsonReader reader(body);
    const std::string method = reader.text("method", 1, 32, "GET"), url = reader.text("url", 1, 16384);
    CO_TRY_VOID(reader.done());
    CO_TRY(const Settings settings, Settings::parse(document));
    CO_TRY(json::object answer, parent.explain(settings, method, url));
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("GET", "/sandboxes/{id}/observed", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string id, sandbox_of(exchange));
    CO_TRY(json::object body, co_await parent.observed(id));
    co_return co_await reply_json(exchange, 200, std::move(body));
  });
}

}  // namespace space::egress
