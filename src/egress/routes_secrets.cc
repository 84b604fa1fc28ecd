#include "base/random.h"
#include "egress/binding.h"
#include "egress/routes.h"
#include "wire/egress_handover.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestValue = 8192;
constexpr std::string_view kSealedType = "application/vnd.space.sealed-credential";

Result<std::string> tenant_of(const http::Exchange& exchange) {
  const std::string& tenant = exchange.param("tenant");
  if (wire::is_tenant(tenant)) return tenant;
  return fail(ErrorKind::invalid_argument, "invalid_tenant", "tenant must be 1 to 64 of [A-Za-z0-9_-]");
}

Result<std::string> name_of(const http::Exchange& exchange) {
  const std::string& name = exchange.param("name");
  if (is_credential_name(name)) return name;
  return fail(ErrorKind::invalid_argument, "invalid_credential_name",
              "a credential's name is 1 to 64 of [a-z0-9._-] and begins with a letter or digit");
}

struct LineageOf {
  std::string tenant, lineage;
};

Result<LineageOf> lineage_of(const http::Exchange& exchange) {
  LineageOf out{exchange.target().query_value("tenant").value_or(""), exchange.param("lineage")};
  if (!wire::is_tenant(out.tenant) || !is_id(out.lineage))
    return fail(ErrorKind::not_found, "lineage_not_found", "there is no CA of this lineage");
  return out;
}

}  // namespace

void add_secret_routes(http::Router& router, Parent& parent) {
  router.add("PUT", "/credentials/{tenant}/{name}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string tenant, tenant_of(exchange));
    CO_TRY(const std::string name, name_of(exchange));
    const bool sealed = exchange.headers().get("Content-Type") == kSealedType;
    CO_TRY(std::string body, co_await exchange.read_body(sealed ? SealingKey::kLongestBox : kLongestValue));
    Secret value(body);
    wipe_string(body);
    json::object answer;
    if (sealed) {
      CO_TRY(answer, co_await parent.put_sealed_credential(tenant, name, std::move(value)));
    } else {
      CO_TRY(answer, co_await parent.put_credential(tenant, name, std::move(value)));
    }
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("GET", "/sealing-key", [&parent](http::Exchange& exchange) -> Task<> {
    json::object answer{{"algorithm", SealingKey::kAlgorithm}, {"key", parent.sealing_key()}};
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("GET", "/ca", [&parent](http::Exchange& exchange) -> Task<> {
    json::object answer{{"lineages", parent.lineages()}};
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("GET", "/credentials/{tenant}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string tenant, tenant_of(exchange));
    json::object answer{{"credentials", parent.credentials(tenant)}};
    co_return co_await reply_json(exchange, 200, std::move(answer));
  });
  router.add("DELETE", "/credentials/{tenant}/{name}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const std::string tenant, tenant_of(exchange));
    CO_TRY(const std::string name, name_of(exchange));
    CO_TRY_VOID(co_await parent.remove_credential(tenant, name));
    co_return co_await no_content(exchange);
  });
  router.add("GET", "/ca/{lineage}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const LineageOf of, lineage_of(exchange));
    http::Response response;
    CO_TRY(response.body, co_await parent.certificate(of.tenant, of.lineage));
    response.headers.set("Content-Type", "application/x-pem-file");
    co_return co_await exchange.reply(std::move(response));
  });
  router.add("DELETE", "/ca/{lineage}", [&parent](http::Exchange& exchange) -> Task<> {
    CO_TRY(const LineageOf of, lineage_of(exchange));
    CO_TRY_VOID(co_await parent.remove_lineage(of.tenant, of.lineage));
    co_return co_await no_content(exchange);
  });
}

}  // namespace space::egress
