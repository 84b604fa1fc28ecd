// The network of a sandbox: its policy, what would become of a request, what has become of them, and the tenant's credentials.
// Policies are kept in the store and checked and enforced by the egress gateway; a credential's value only passes through here.
#include <fmt/format.h>
#include <openssl/crypto.h>

#include <array>

#include "api/ports.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/encoding.h"
#include "control/egress.h"
#include "http/proxy.h"

namespace space::api {
namespace {

using control::EgressSettings;

constexpr std::size_t kPolicyLimit = 4 << 20;  // ten thousand rules
constexpr std::size_t kSecretLimit = 8192, kSealedLimit = 8192 + 512;
constexpr std::chrono::milliseconds kTellFor{3'000}, kTellAgain{200};
constexpr std::string_view kSealedType = "application/vnd.space.sealed-credential";  // to the gateway's key; nobody here can read it

Result<control::Egress*> gateway(Services& services) {
  if (services.egress) return services.egress;
  return fail(ErrorKind::unavailable, "egress_unavailable", "this server has no egress gateway", "start it with `space serve`");
}

Result<json::object> render_settings(const EgressSettings& settings) {
  TRY(json::object out, parse_json_object(settings.document, 8 << 20));
  out["sandbox"] = settings.sandbox;
  out["generation"] = settings.generation;
  return out;
}

// What the gateway knows beside the policy; without it the policy is still an answer.
Task<json::object> with_state(control::Egress& egress, EgressSettings settings) {
  CO_TRY(json::object out, render_settings(settings));
  auto state = co_await egress.ask("GET", "/sandboxes/" + settings.sandbox);
  const json::value* generation = state ? state->if_contains("generation") : nullptr;
  const json::value* held = state ? state->if_contains("held") : nullptr;
  out["applied"] = settings.generation == 0 || (generation && generation->is_int64() && generation->get_int64() == settings.generation &&
                                                !(held && held->is_bool() && held->get_bool()));
  out["serving"] = false;
  if (state)
    for (const char* name : {"attached", "serving", "names", "counters"})
      if (json::value* value = state->if_contains(name)) out[name] = std::move(*value);
  co_return out;
}

Task<> get_policy(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY(control::Egress* const egress, gateway(services));
  CO_TRY(EgressSettings settings, co_await services.store.find_egress(tenant_of(exchange), std::move(id)));
  CO_TRY(const json::object out, co_await with_state(*egress, std::move(settings)));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> put_policy(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY_VOID(check_media_type(exchange));
  CO_TRY(const std::string raw, co_await exchange.read_body(kPolicyLimit));
  CO_TRY(json::object body, parse_json_object(raw, kPolicyLimit));
  JsonReader reader(body);
  const auto expected = reader.optional_number("generation", 0, INT64_MAX);
  reader.ignore_unknown();
  CO_TRY_VOID(reader.done());
  body.erase("generation");
  CO_TRY(std::string document, egress_document(json::value(std::move(body))));
  CO_TRY(control::Egress* const egress, gateway(services));
  CO_TRY_VOID(co_await services.store.find_egress(tenant_of(exchange), id));
  CO_TRY_VOID(co_await egress->check(document));
  CO_TRY(auto change, co_await egress->announce(id));
  auto kept = co_await services.store.put_egress(tenant_of(exchange), id, std::move(document), expected);
  if (!kept) {
    co_await egress->withdraw(std::move(id), change->id());
    co_return fail(std::move(kept).error());
  }
  // It is kept now. A gateway that died in this moment finds the change announced when it is back, and serves nothing until it is told;
  // it is mostly back at once.
  auto applied = co_await egress->conclude(*kept, change->id());
  const auto until = std::chrono::steady_clock::now() + kTellFor;
  while (!applied && applied.error().kind == ErrorKind::unavailable && std::chrono::steady_clock::now() < until) {
    co_await sleep_for(kTellAgain);
    applied = co_await egress->conclude(*kept, change->id());
  }
  change.reset();
  if (!applied) services.reconcile_egress();
  if (!applied && applied.error().kind != ErrorKind::unavailable) co_return applied;
  CO_TRY(const json::object out, co_await with_state(*egress, std::move(*kept)));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> explain(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader reader(body);
  std::string method = reader.text("method", 1, 32, "GET");
  std::string url = reader.text("url", 1, 8192);
  CO_TRY_VOID(reader.done());
  CO_TRY(control::Egress* const egress, gateway(services));
  CO_TRY(const EgressSettings settings, co_await services.store.find_egress(tenant_of(exchange), id));
  // By the policy that the store has, which is the one in force or about to be.
  CO_TRY(json::object asked, parse_json_object(settings.document, 8 << 20));
  asked["method"] = std::move(method);
  asked["url"] = std::move(url);
  CO_TRY(const json::object answer, co_await egress->ask("POST", "/explain", json::serialize(asked)));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(answer)));
}

Task<> observed(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY(control::Egress* const egress, gateway(services));
  CO_TRY_VOID(co_await services.store.find_egress(tenant_of(exchange), id));
  auto answer = co_await egress->ask("GET", "/sandboxes/" + id + "/observed");
  if (!answer && answer.error().kind == ErrorKind::not_found)
    answer = json::object{{"policy", json::object{{"mode", "allowlist"}, {"rules", json::array()}}}};
  if (!answer) co_return tl::unexpected(answer.error());
  co_return co_await exchange.reply(http::json_response(200, json::serialize(*answer)));
}

// The gateway's own event stream: its ids are those that a client comes back with.
Task<> carry_log(Services& services, http::Exchange& exchange, std::string sandbox) {
  Query query(exchange.target());
  std::string after = query.text("after", 32);
  const std::string follow = query.text("follow", 8);
  if (!follow.empty() && follow != "true" && follow != "false") query.reject("follow", "must be true or false");
  CO_TRY_VOID(query.done());
  if (const auto header = exchange.headers().get("Last-Event-ID"); !header.empty()) after = header;
  CO_TRY_VOID(read_event_id(after));
  CO_TRY(control::Egress* const egress, gateway(services));
  http::ProxyOptions options;
  options.target = "/audit?tenant=" + percent_encode(tenant_of(exchange)) + "&follow=" + (follow == "true" ? "true" : "false");
  if (!sandbox.empty()) options.target += "&sandbox=" + sandbox;
  if (!after.empty()) options.target += "&after=" + after;
  options.event_stream = true;
  for (const auto& [name, value] : exchange.headers().fields())
    if (!http::equal_no_case(name, "Accept")) options.drop_headers.push_back(name);
  ++services.counters.streams;
  auto result = co_await http::forward(exchange, egress->forwarding(), std::move(options));
  --services.counters.streams;
  if (!result && !exchange.started() && result.error().kind == ErrorKind::unavailable)
    co_return fail(control::egress_unavailable(result.error().message));
  co_return result;
}

Task<> sandbox_log(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY_VOID(co_await services.store.find_egress(tenant_of(exchange), id));
  co_return co_await carry_log(services, exchange, std::move(id));
}

Task<> tenant_log(Services& services, http::Exchange& exchange) { return carry_log(services, exchange, ""); }

// A buffer that leaves nothing behind.
struct Secret {
  std::array<std::byte, kSealedLimit + 1> bytes;
  std::size_t size = 0;
  Secret() = default;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
};

Result<std::string> credential_target(const http::Exchange& exchange) {
  const std::string& name = exchange.param("name");
  const bool good = !name.empty() && name.size() <= 64 && name.front() != '.' && name.front() != '_' && name.front() != '-' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
                    });
  if (!good)
    return fail(ErrorKind::invalid_argument, "invalid_credential_name",
                "a credential's name has 1 to 64 of a-z, 0-9, dot, dash and underscore, and begins with a letter or digit",
                "choose another name");
  return "/credentials/" + percent_encode(tenant_of(exchange)) + "/" + name;
}

Task<> put_credential(Services& services, http::Exchange& exchange) {
  CO_TRY(std::string target, credential_target(exchange));
  CO_TRY(control::Egress* const egress, gateway(services));
  Query query(exchange.target());
  const std::string wanted = query.text("sealed", 8);
  if (!wanted.empty() && wanted != "true" && wanted != "false") query.reject("sealed", "must be true or false");
  CO_TRY_VOID(query.done());
  const bool sealed = wanted == "true";
  const std::size_t limit = sealed ? kSealedLimit : kSecretLimit;
  const auto secret = std::make_unique<Secret>();
  for (;;) {
    const std::span<std::byte> room = std::span(secret->bytes).subspan(secret->size);
    CO_TRY(const std::size_t got, co_await exchange.read(room));
    if (got == 0) break;
    secret->size += got;
    if (secret->size > limit)
      co_return fail(ErrorKind::too_large, "body_too_large", fmt::format("a credential has at most {} bytes", limit),
                     "send the secret alone as the body");
  }
  http::Request request;
  request.method = "PUT";
  request.target = std::move(target);
  request.headers.set("Content-Type", sealed ? std::string(kSealedType) : std::string("application/octet-stream"));
  auto opened = co_await egress->forwarding().open(std::move(request), http::BodyKind::sized, secret->size);
  if (!opened) co_return fail(control::egress_unavailable(opened.error().message));
  const std::unique_ptr<http::ClientStream> stream = std::move(*opened);
  auto sent = co_await stream->write(std::span<const std::byte>(secret->bytes).first(secret->size));
  if (sent) sent = co_await stream->finish_request();
  auto head = co_await stream->head();
  if (!head) co_return fail(control::egress_unavailable(head.error().message));
  CO_TRY(std::string answer, co_await stream->read_all(64 << 10));
  if (head->status >= 400) co_return fail(http::error_from_response(head->status, answer));
  co_return co_await exchange.reply(http::json_response(200, std::move(answer)));
}

// What a client seals a credential to, and the tenant that the box is for.
Task<> credential_key(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(control::Egress* const egress, gateway(services));
  CO_TRY(json::object answer, co_await egress->ask("GET", "/sealing-key"));
  answer["tenant"] = tenant_of(exchange);
  co_return co_await exchange.reply(http::json_response(200, json::serialize(answer)));
}

Task<> list_credentials(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(control::Egress* const egress, gateway(services));
  std::string target = "/credentials/" + percent_encode(tenant_of(exchange));
  CO_TRY(const json::object answer, co_await egress->ask("GET", std::move(target)));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(answer)));
}

Task<> delete_credential(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string target, credential_target(exchange));
  CO_TRY(control::Egress* const egress, gateway(services));
  CO_TRY_VOID(co_await egress->ask("DELETE", std::move(target)));
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

Result<std::uint16_t> port_of(const http::Exchange& exchange) {
  const std::string& text = exchange.param("port");
  unsigned port = 0;
  for (const char c : text) port = c >= '0' && c <= '9' && port <= 65535 ? port * 10 + static_cast<unsigned>(c - '0') : 70'000;
  if (text.empty() || text.front() == '0' || port < 1 || port > 65535)
    return fail(ErrorKind::invalid_argument, "invalid_port", "a port is a number from 1 to 65535", "write it without leading zeros");
  return static_cast<std::uint16_t>(port);
}

Task<> answer_ports(Services& services, http::Exchange& exchange, std::string id) {
  CO_TRY(const auto ports, co_await services.store.public_ports(tenant_of(exchange), std::move(id)));
  json::array list;
  for (const std::uint16_t port : ports) list.push_back(json::object{{"port", port}});
  const json::object out{{"ports", std::move(list)}};
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> list_ports(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  co_return co_await answer_ports(services, exchange, std::move(id));
}

Task<> change_port(Services& services, http::Exchange& exchange, bool is_public) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY(const std::uint16_t port, port_of(exchange));
  CO_TRY_VOID(co_await services.store.set_port(tenant_of(exchange), id, port, is_public));
  co_return co_await answer_ports(services, exchange, std::move(id));
}

Task<> open_port(Services& services, http::Exchange& exchange) { return change_port(services, exchange, true); }
Task<> close_port(Services& services, http::Exchange& exchange) { return change_port(services, exchange, false); }

Task<> give_traffic_token(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(std::string id, sandbox_id(exchange));
  CO_TRY(const std::string token, co_await traffic_token(services, std::move(id), tenant_of(exchange)));
  const json::object out{{"token", token}, {"header", kTrafficToken}};
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

}  // namespace

Result<std::string> egress_document(const json::value& value) {
  if (value.is_string()) {
    // A mode alone, for those who write `"egress": "open"`.
    const json::object mode{{"policy", json::object{{"mode", value.get_string()}}}};
    return json::serialize(mode);
  }
  if (!value.is_object())
    return fail(ErrorKind::invalid_argument, "invalid_field", "egress must be a mode or an object with a policy", "see docs/network.md");
  JsonReader reader(value.get_object());
  const json::object* policy = reader.object("policy");
  const json::object* limits = reader.object("limits");
  const json::array* credentials = reader.array("credentials", 1000);
  TRY_VOID(reader.done());
  json::object out{{"policy", policy ? *policy : json::object{{"mode", "none"}}}};
  if (limits) out["limits"] = *limits;
  if (credentials) out["credentials"] = *credentials;
  return json::serialize(out);
}

void add_egress_routes(Routes& routes) {
  const std::string sandbox = "/v1/sandboxes/{id}";
  routes.add("GET", sandbox + "/egress", Access::key, Repeat::safe, get_policy);
  routes.add("PUT", sandbox + "/egress", Access::key, Repeat::streamed, put_policy);  // a policy may be larger than what `kept` reads
  routes.add("POST", sandbox + "/egress/explain", Access::key, Repeat::safe, explain);
  routes.add("GET", sandbox + "/egress/observed", Access::key, Repeat::safe, observed);
  routes.add("GET", sandbox + "/egress/log", Access::key, Repeat::safe, sandbox_log);
  routes.add("GET", "/v1/egress/log", Access::key, Repeat::safe, tenant_log);
  routes.add("GET", "/v1/credential-key", Access::key, Repeat::safe, credential_key);
  routes.add("GET", "/v1/credentials", Access::key, Repeat::safe, list_credentials);
  routes.add("PUT", "/v1/credentials/{name}", Access::key, Repeat::safe, put_credential);  // nothing of it may be kept, not even its digest
  routes.add("DELETE", "/v1/credentials/{name}", Access::key, Repeat::kept, delete_credential);
  routes.add("GET", sandbox + "/public-ports", Access::key, Repeat::safe, list_ports);
  routes.add("PUT", sandbox + "/public-ports/{port}", Access::key, Repeat::kept, open_port);
  routes.add("DELETE", sandbox + "/public-ports/{port}", Access::key, Repeat::kept, close_port);
  routes.add("POST", sandbox + "/traffic-token", Access::key, Repeat::safe, give_traffic_token);
}

}  // namespace space::api
