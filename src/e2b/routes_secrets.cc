// E2B's secrets: credentials of the tenant's that the gateway keeps. Their values come in and never go out; a header rule names them
// (${e2b.secrets.NAME}), and so may a native binding. What E2B keeps beside a value (metadata, when it was made) is a note in the store.
#include <algorithm>
#include <fmt/format.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "e2b/header_rules.h"
#include "e2b/request.h"
#include "e2b/state.h"

namespace space::e2b {
namespace {

constexpr std::size_t kMostMetadata = 32, kLongestKey = 128, kLongestText = 1024, kMetadataLimit = 8192, kMostSecrets = 100'000,
                      kLongestValue = 8192;
constexpr std::string_view kIdPrefix = "sec_";

struct SecretRecord {
  std::string name, updated_at;
  std::int64_t version = 1;
};

auto no_secret(std::string_view name) {
  return fail(ErrorKind::not_found, "secret_not_found",
              fmt::format("there is no secret '{}' of yours", is_utf8(name) ? name.substr(0, 80) : "?"),
              "see what there is: list the secrets");
}

Result<std::string> read_name(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (out.empty() || out.size() > 64 || !plain(out[0]) ||
      !std::all_of(out.begin(), out.end(), [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; }))
    return invalid_request("a secret's name has 1 to 64 of letters, digits, dot, dash and underscore, and begins with a letter or digit");
  if (out.starts_with(kIdPrefix) || is_of_header_rule(out))
    return invalid_request(fmt::format("a secret's name cannot begin like '{}'", out.substr(0, 9)));
  return out;
}

std::string id_of(const std::string& tenant, const std::string& name) {
  return std::string(kIdPrefix) + hex_encode(sha256(tenant + "/" + name)).substr(0, 24);
}
std::string note_of(const std::string& tenant, const std::string& name) { return fmt::format("secret:{}:{}", tenant, name); }

Task<std::vector<SecretRecord>> secrets_of(State& state, std::string tenant) {
  if (!state.parts.egress) co_return fail(control::egress_unavailable("this server has none"));
  CO_TRY(const json::object answer, co_await state.parts.egress->ask("GET", "/credentials/" + percent_encode(tenant)));
  JsonReader top(answer);
  top.ignore_unknown();
  const json::array* list = top.array("credentials", kMostSecrets);
  CO_TRY_VOID(top.done());
  std::vector<SecretRecord> out;
  if (list)
    for (const json::value& item : *list) {
      if (!item.is_object()) continue;
      JsonReader r(item.get_object(), "credentials");
      r.ignore_unknown();
      SecretRecord one{r.text("name", 1, 64), r.text("updated_at", 1, 40), r.number("version", 1, INT64_MAX, 1)};
      CO_TRY_VOID(r.done());
      if (!is_of_header_rule(one.name)) out.push_back(std::move(one));
    }
  std::sort(out.begin(), out.end(), [](const SecretRecord& a, const SecretRecord& b) { return a.name < b.name; });
  co_return out;
}

// By name or by id.
Task<SecretRecord> find_secret(State& state, std::string tenant, std::string wanted) {
  CO_TRY(std::vector<SecretRecord> all, co_await secrets_of(state, tenant));
  std::string name = wanted;
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (SecretRecord& one : all)
    if (one.name == name || id_of(tenant, one.name) == wanted) co_return std::move(one);
  co_return no_secret(wanted);
}

Task<json::object> render(State& state, const std::string& tenant, const SecretRecord& secret) {
  CO_TRY(const std::string text, co_await state.parts.store.find_settings(note_of(tenant, secret.name)));
  json::object metadata;
  std::string created = secret.updated_at;
  if (!text.empty()) {
    CO_TRY(const json::object note, parse_json_object(text, 64 << 10));
    JsonReader r(note);
    r.ignore_unknown();
    created = r.text("created_at", 1, 40, created);
    if (const json::object* kept = r.object("metadata")) metadata = *kept;
    CO_TRY_VOID(r.done());
  }
  co_return json::object{{"secretID", id_of(tenant, secret.name)}, {"name", secret.name},  {"currentVersion", secret.version},
                         {"metadata", std::move(metadata)},        {"createdAt", created}, {"updatedAt", secret.updated_at}};
}

struct SecretBody {
  std::string name, value;
  std::optional<std::map<std::string, std::string>> metadata;
};
Result<SecretBody> read_secret(const json::object& body, bool with_name) {
  JsonReader r(body);
  r.ignore_unknown();
  SecretBody out;
  if (with_name) out.name = r.text("name", 1, 64);
  out.value = r.text("value", 1, kLongestValue);
  if (const json::value* given = body.if_contains("metadata"); given && !given->is_null())
    out.metadata = r.text_map("metadata", kMostMetadata, kLongestText);
  TRY_VOID(r.done());
  std::size_t size = 0;
  if (out.metadata)
    for (const auto& [key, value] : *out.metadata) {
      if (key.size() > kLongestKey) return invalid_request(fmt::format("a key of metadata has at most {} bytes", kLongestKey));
      size += key.size() + value.size();
    }
  if (size > kMetadataLimit) return invalid_request(fmt::format("metadata has more than {} bytes", kMetadataLimit));
  return out;
}

Task<> put_note(State& state, const std::string& tenant, const std::string& name, const std::map<std::string, std::string>& metadata,
                std::string created) {
  json::object shown;
  for (const auto& [key, value] : metadata) shown[key] = value;
  const json::object note{{"created_at", created}, {"metadata", std::move(shown)}};
  co_return co_await state.parts.store.put_settings(note_of(tenant, name), json::serialize(note));
}

Task<> create_secret(State& state, http::Exchange& exchange) {
  const std::string tenant = tenant_of(exchange);
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(SecretBody wanted, read_secret(body, true));
  CO_TRY(const std::string name, read_name(wanted.name));
  CO_TRY(const std::vector<SecretRecord> all, co_await secrets_of(state, tenant));
  if (std::any_of(all.begin(), all.end(), [&](const SecretRecord& one) { return one.name == name; }))
    co_return fail(ErrorKind::conflict, "secret_exists", fmt::format("there is a secret '{}' already", name),
                   "update it, or choose another name");
  // The note first: a secret without one has lost its metadata, a note without a secret is nothing.
  std::string created = rfc3339(state.parts.clock.wall_ms());
  CO_TRY_VOID(co_await put_note(state, tenant, name, wanted.metadata.value_or(std::map<std::string, std::string>()), std::move(created)));
  CO_TRY_VOID(co_await put_credential(state, tenant, name, wanted.value));
  CO_TRY(const SecretRecord made, co_await find_secret(state, tenant, name));
  CO_TRY(const json::object answer, co_await render(state, tenant, made));
  co_return co_await reply(exchange, 201, answer);
}

Task<> list_secrets(State& state, http::Exchange& exchange) {
  const std::string tenant = tenant_of(exchange);
  CO_TRY(const std::size_t limit, read_limit(exchange.target()));
  CO_TRY(std::vector<SecretRecord> all, co_await secrets_of(state, tenant));
  if (const auto after = exchange.target().query_value("nextToken"); after && !after->empty())
    std::erase_if(all, [&](const SecretRecord& one) { return one.name <= *after; });
  json::array out;
  for (std::size_t i = 0; i < std::min(limit, all.size()); ++i) {
    CO_TRY(json::object one, co_await render(state, tenant, all[i]));
    out.push_back(std::move(one));
  }
  http::Response response = http::json_response(200, json::serialize(out));
  if (all.size() > limit) response.headers.set("X-Next-Token", all[limit - 1].name);
  co_return co_await exchange.reply(std::move(response));
}

Task<> get_secret(State& state, http::Exchange& exchange) {
  const std::string tenant = tenant_of(exchange);
  CO_TRY(const SecretRecord found, co_await find_secret(state, tenant, exchange.param("secret")));
  CO_TRY(const json::object answer, co_await render(state, tenant, found));
  co_return co_await reply(exchange, 200, answer);
}

Task<> update(State& state, http::Exchange& exchange) {
  const std::string tenant = tenant_of(exchange);
  CO_TRY(const json::object body, co_await read_body(exchange));
  CO_TRY(SecretBody wanted, read_secret(body, false));
  CO_TRY(const SecretRecord found, co_await find_secret(state, tenant, exchange.param("secret")));
  CO_TRY(const json::object before, co_await render(state, tenant, found));
  CO_TRY_VOID(co_await put_credential(state, tenant, found.name, wanted.value));
  if (wanted.metadata) {
    std::string created(before.at("createdAt").get_string());
    CO_TRY_VOID(co_await put_note(state, tenant, found.name, *wanted.metadata, std::move(created)));
  }
  CO_TRY(const SecretRecord now, co_await find_secret(state, tenant, found.name));
  CO_TRY(const json::object answer, co_await render(state, tenant, now));
  co_return co_await reply(exchange, 200, answer);
}

Task<> remove_secret(State& state, http::Exchange& exchange) {
  const std::string tenant = tenant_of(exchange);
  CO_TRY(const SecretRecord found, co_await find_secret(state, tenant, exchange.param("secret")));
  std::string target = fmt::format("/credentials/{}/{}", percent_encode(tenant), found.name);
  CO_TRY_VOID(co_await state.parts.egress->ask("DELETE", std::move(target)));
  CO_TRY_VOID(co_await state.parts.store.put_settings(note_of(tenant, found.name), ""));
  co_return co_await reply_empty(exchange);
}

}  // namespace

void add_secret_routes(State& state) {
  add(state, "POST", "/secrets", create_secret);
  add(state, "GET", "/secrets", list_secrets);
  add(state, "GET", "/secrets/{secret}", get_secret);
  add(state, "POST", "/secrets/{secret}", update);
  add(state, "DELETE", "/secrets/{secret}", remove_secret);
}

}  // namespace space::e2b
