#include "e2b/header_rules.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <set>

#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "e2b/network.h"

namespace space::e2b {
namespace {

constexpr std::size_t kMostHosts = 10, kMostHeaders = 20, kLongestHost = 128, kLongestHeader = 64, kLongestValue = 2048, kLeastValue = 8,
                      kLongestPrefix = 64;
constexpr std::string_view kPrefix = "e2b-rule-";
constexpr std::string_view kPlaceholder = "${e2b.", kSecret = "${e2b.secrets.";
constexpr std::size_t kRuleAnswer = 1 << 20;

bool is_header(std::string_view text) {
  return !text.empty() && text.size() <= kLongestHeader && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// The host as the gateway takes it: lower case, "*." in front at most.
Result<std::string> read_host(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const std::string_view bare = std::string_view(out).substr(out.starts_with("*.") ? 2 : 0);
  const bool good = !bare.empty() && out.size() <= kLongestHost && bare.front() != '.' && bare.back() != '.' &&
                    bare.find("..") == bare.npos && std::all_of(bare.begin(), bare.end(), [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_';
                    });
  if (!good) return invalid_network(fmt::format("rules: '{}' is not the name of a host", is_utf8(text) ? text.substr(0, 64) : "?"));
  return out;
}

// What stands in the value: a secret by name, or itself.
Result<> read_value(HeaderRule& rule, std::string_view value) {
  const std::string where = fmt::format("rules: the header {} for {}", rule.header, rule.host);
  if (value.size() > kLongestValue || !is_printable(value))
    return invalid_network(fmt::format("{} must be printable and have at most {} bytes", where, kLongestValue));
  const std::size_t at = value.find(kPlaceholder);
  if (at == value.npos) {
    if (value.size() < kLeastValue)
      return invalid_network(fmt::format("{} is kept as a secret, and those have at least {} bytes", where, kLeastValue));
    rule.value = value;
    return {};
  }
  const std::string_view rest = value.substr(at);
  if (!rest.starts_with(kSecret) || rest.find('}') != rest.size() - 1 || at > kLongestPrefix)
    return invalid_network(
        fmt::format("{}: of placeholders this server knows ${{e2b.secrets.NAME}} at the end of a value, with at most {} bytes in front",
                    where, kLongestPrefix));
  rule.secret = rest.substr(kSecret.size(), rest.size() - kSecret.size() - 1);
  rule.prefix = value.substr(0, at);
  for (char& c : rule.secret)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (rule.secret.empty() || rule.secret.size() > 64) return invalid_network(fmt::format("{}: the placeholder names no secret", where));
  return {};
}

// The headers of a host's rule: [{"transform":{"headers":{…}}}].
const json::object* headers_of(const json::value& list) {
  if (!list.is_array() || list.get_array().size() != 1 || !list.get_array()[0].is_object()) return nullptr;
  const json::value* transform = list.get_array()[0].get_object().if_contains("transform");
  if (!transform || !transform->is_object()) return nullptr;
  const json::value* headers = transform->get_object().if_contains("headers");
  return headers && headers->is_object() ? &headers->get_object() : nullptr;
}

std::string credential_target(const std::string& tenant, const std::string& name) {
  return fmt::format("/credentials/{}/{}", percent_encode(tenant), name);
}

struct Wiped {  // a value that leaves nothing behind
  explicit Wiped(std::string& text) : text_(text) {}
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
  ~Wiped() { OPENSSL_cleanse(text_.data(), text_.size()); }

 private:
  std::string& text_;
};

Task<> sweep(State& state, std::string tenant) {
  control::Egress& egress = *state.parts.egress;
  CO_TRY(const json::object answer, co_await egress.ask("GET", "/credentials/" + percent_encode(tenant)));
  JsonReader r(answer);
  r.ignore_unknown();
  std::vector<std::string> ours;
  if (const json::array* list = r.array("credentials", 100'000))
    for (const json::value& item : *list)
      if (const json::value* name = item.is_object() ? item.get_object().if_contains("name") : nullptr; name && name->is_string())
        if (is_of_header_rule(name->get_string()) && !state.placing.contains(std::string(name->get_string())))
          ours.emplace_back(name->get_string());
  CO_TRY_VOID(r.done());
  if (ours.empty()) co_return Result<>();
  CO_TRY(const std::vector<control::EgressSettings> all, co_await state.parts.store.all_egress());
  for (const std::string& name : ours) {
    const bool needed = std::any_of(all.begin(), all.end(), [&](const control::EgressSettings& one) {
      return one.tenant == tenant && one.document.find(name) != std::string::npos;
    });
    if (needed || state.placing.contains(name)) continue;
    std::string target = credential_target(tenant, name);
    CO_TRY_VOID(co_await egress.ask("DELETE", std::move(target)));
  }
  co_return Result<>();
}

}  // namespace

bool is_of_header_rule(std::string_view credential) { return credential.starts_with(kPrefix); }

Result<std::vector<HeaderRule>> read_header_rules(const json::value* rules) {
  std::vector<HeaderRule> out;
  if (!rules || rules->is_null()) return out;
  if (!rules->is_object()) return invalid_network("rules must be an object of hosts");
  if (rules->get_object().size() > kMostHosts) return invalid_network(fmt::format("rules has more than {} hosts", kMostHosts));
  std::vector<std::string> hosts;
  for (const auto& [name, list] : rules->get_object()) {
    TRY(const std::string host, read_host(name));
    for (const std::string& other : hosts)
      if (covers(host, other) || covers(other, host))
        return invalid_network(fmt::format("rules: {} and {} cover one another: give each host one rule", host, other));
    hosts.push_back(host);
    if (list.is_array() && list.get_array().empty()) continue;
    const json::object* headers = headers_of(list);
    if (!headers) return invalid_network(fmt::format("rules: {} must have one transform with headers", host));
    if (headers->size() > kMostHeaders) return invalid_network(fmt::format("rules: {} has more than {} headers", host, kMostHeaders));
    for (const auto& [header, value] : *headers) {
      if (!is_header(header) || !value.is_string()) return invalid_network(fmt::format("rules: a header of {} is no header", host));
      HeaderRule rule{host, std::string(header), "", "", ""};
      TRY_VOID(read_value(rule, value.get_string()));
      out.push_back(std::move(rule));
    }
  }
  return out;
}

json::object redacted_rules(const json::value* rules) {
  json::object out;
  if (!rules || !rules->is_object()) return out;
  for (const auto& [host, list] : rules->get_object()) {
    json::object shown;
    if (const json::object* headers = headers_of(list))
      for (const auto& [header, value] : *headers)
        shown[header] = value.is_string() && value.get_string().find(kPlaceholder) != value.get_string().npos ? value : json::value("***");
    out[host] = json::array{json::object{{"transform", json::object{{"headers", std::move(shown)}}}}};
  }
  return out;
}

Task<json::object> put_credential(State& state, std::string tenant, std::string name, std::string& value) {
  const Wiped wiped(value);
  if (!state.parts.egress) co_return fail(control::egress_unavailable("this server has none"));
  http::Request request;
  request.method = "PUT";
  request.target = credential_target(tenant, name);
  request.headers.set("Content-Type", "application/octet-stream");
  auto opened = co_await state.parts.egress->forwarding().open(std::move(request), http::BodyKind::sized, value.size());
  if (!opened) co_return fail(control::egress_unavailable(opened.error().message));
  const std::unique_ptr<http::ClientStream> stream = std::move(*opened);
  auto sent = co_await stream->write(as_bytes(value));
  if (sent) sent = co_await stream->finish_request();
  auto head = co_await stream->head();
  if (!head) co_return fail(control::egress_unavailable(head.error().message));
  CO_TRY(const std::string answer, co_await stream->read_all(kRuleAnswer));
  if (head->status >= 400) co_return fail(http::error_from_response(head->status, answer));
  co_return parse_json_object(answer, kRuleAnswer);
}

PlacedRules::~PlacedRules() {
  for (const std::string& name : made_) state_.placing.erase(name);
  if (!made_.empty() && !kept_) spawn(state_.parts.executor, sweep_header_rules(state_, tenant_));
}

Task<> PlacedRules::place(HeaderRule rule) {
  std::string credential = rule.secret;
  if (credential.empty()) {
    credential = std::string(kPrefix) + new_id();
    state_.placing.insert(credential);
    made_.push_back(credential);
    CO_TRY_VOID(co_await put_credential(state_, tenant_, credential, rule.value));
  }
  json::object header{{"name", rule.header}};
  if (!rule.prefix.empty()) header["prefix"] = rule.prefix;
  bindings_.push_back(json::object{{"credential", credential}, {"name", rule.host}, {"port", 443}, {"header", std::move(header)}});
  co_return Result<>();
}

Task<std::unique_ptr<PlacedRules>> place_header_rules(State& state, std::string tenant, json::object& network) {
  auto out = std::make_unique<PlacedRules>(state, std::move(tenant));
  const json::value* given = network.if_contains("rules");
  CO_TRY(std::vector<HeaderRule> rules, read_header_rules(given));
  if (!given) co_return out;
  json::object shown = redacted_rules(given);
  network["rules"] = std::move(shown);
  for (HeaderRule& rule : rules) CO_TRY_VOID(co_await out->place(std::move(rule)));
  co_return out;
}

asio::awaitable<void> sweep_header_rules(State& state, std::string tenant) {
  if (!state.parts.egress) co_return;
  const auto swept = co_await sweep(state, tenant);
  if (!swept) log::warn("e2b.credentials_left", {{"tenant", tenant}, {"error", swept.error()}});
}

}  // namespace space::e2b
