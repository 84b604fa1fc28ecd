#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/random.h"

namespace space::api {
namespace {

Task<> create_key(Services& services, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader reader(body);
  std::string name = reader.text("name", 1, 128);
  CO_TRY_VOID(reader.done());
  CO_TRY(const NewKey made, co_await services.keys.create(tenant_of(exchange), std::move(name)));
  json::object out = render(made.key);
  out["key"] = made.secret;
  co_return co_await exchange.reply(http::json_response(201, json::serialize(out)));
}

Task<> list_keys(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  CO_TRY_VOID(query.done());
  CO_TRY(const auto keys, co_await services.store.list_keys(tenant_of(exchange)));
  json::array list;
  for (const control::Key& key : keys) {
    json::object item = render(key);
    item["current"] = key.id == exchange.attributes["key"];
    list.push_back(std::move(item));
  }
  const json::object out{{"keys", std::move(list)}};
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> revoke_key(Services& services, http::Exchange& exchange) {
  const std::string id = exchange.param("key");
  if (!is_id(id)) co_return fail(ErrorKind::not_found, "key_not_found", "there is no such key", "list what there is: GET /v1/keys");
  CO_TRY(const control::Key key, co_await services.keys.revoke(tenant_of(exchange), id));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(render(key))));
}

}  // namespace

void add_key_routes(Routes& routes) {
  routes.add("POST", "/v1/keys", Access::key, Repeat::secret, create_key);
  routes.add("GET", "/v1/keys", Access::key, Repeat::safe, list_keys);
  routes.add("DELETE", "/v1/keys/{key}", Access::key, Repeat::kept, revoke_key);
}

}  // namespace space::api
