#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "api/tenancy.h"
#include "base/random.h"

namespace space::api {
namespace {

constexpr std::int64_t kLongestLifeS = 10LL * 366 * 24 * 3600;

// Whose keys are meant: the caller's own, or those of the tenant that an admin of the host names.
Result<std::string> whose(const http::Exchange& exchange, std::optional<std::string> named) {
  const std::string& own = tenant_of(exchange);
  if (!named || *named == own) return own;
  if (!control::is_tenant(*named))
    return fail(ErrorKind::invalid_argument, "invalid_tenant",
                "a tenant is 1 to 64 lower-case letters, digits, `-` and `_`, the first a letter or a digit", "choose another name");
  if (own != control::kDefaultTenant)
    return fail(ErrorKind::permission_denied, "host_only", "keys of other tenants are for those who keep the server", "leave `tenant` out");
  return *named;
}

Task<> create_key(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader reader(body);
  std::string name = reader.text("name", 1, 128);
  std::vector<std::string> words = reader.texts("scopes", 4, 16);
  if (!reader.has("scopes")) words.emplace_back("run");
  const auto scopes = control::Scopes::parse(words);
  if (!scopes) reader.reject("scopes", "must name one or more of read, run, publish and admin");
  auto named = reader.optional_text("tenant", 64);
  const std::int64_t life_s = reader.number("expires_in_s", 1, kLongestLifeS, 0);
  const std::string form = reader.text("form", 1, 16, "native");
  if (form != "native" && form != "e2b") reader.reject("form", "must be native or e2b");
  CO_TRY_VOID(reader.done());
  CO_TRY(std::string tenant, whose(exchange, std::move(named)));
  CO_TRY_VOID(co_await admit_tenant(services, tenant));
  const std::int64_t expires_ms = life_s == 0 ? 0 : services.clock.wall_ms() + life_s * 1000;
  CO_TRY(const NewKey made, co_await services.keys.create(std::move(tenant), std::move(name), *scopes, expires_ms,
                                                          form == "e2b" ? KeyForm::e2b : KeyForm::native));
  json::object out = render(made.key);
  out["key"] = made.secret;
  co_return co_await exchange.reply(http::json_response(201, json::serialize(out)));
}

Task<> list_keys(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  std::string named = query.text("tenant", 64);
  CO_TRY_VOID(query.done());
  CO_TRY(std::string tenant, whose(exchange, named.empty() ? std::nullopt : std::optional(std::move(named))));
  CO_TRY(const auto keys, co_await services.store.list_keys(std::move(tenant)));
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
  CO_TRY_VOID(no_query(exchange));
  const std::string id = exchange.param("key");
  if (!is_id(id)) co_return fail(ErrorKind::not_found, "key_not_found", "there is no such key", "list what there is: GET /v1/keys");
  std::string tenant = tenant_of(exchange);
  if (tenant == control::kDefaultTenant) tenant.clear();  // those who keep the server may end anybody's key
  CO_TRY(const control::Key key, co_await services.keys.revoke(std::move(tenant), id));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(render(key))));
}

}  // namespace

void add_key_routes(Routes& routes) {
  routes.add("POST", "/v1/keys", Access::admin, Repeat::secret, create_key);
  routes.add("GET", "/v1/keys", Access::admin, Repeat::safe, list_keys);
  routes.add("DELETE", "/v1/keys/{key}", Access::admin, Repeat::kept, revoke_key);
}

}  // namespace space::api
