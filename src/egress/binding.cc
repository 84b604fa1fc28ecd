#include "egress/binding.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "egress/name.h"
#include "http/message.h"

namespace space::egress {
namespace {

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// Headers that decide where a message goes or ends are not a place for a secret.
bool is_reserved_header(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "Host",   "Content-Length", "Transfer-Encoding",   "Connection",       "Upgrade",         "TE",    "Trailer",
      "Expect", "Keep-Alive",     "Proxy-Authorization", "Proxy-Connection", "Accept-Encoding", "Range", "If-Range"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](std::string_view known) { return http::equal_no_case(known, name); });
}

bool name_covers(std::string_view pattern, std::string_view host) {
  if (!pattern.starts_with("*.")) return pattern == host;
  return host.size() > pattern.size() - 1 && host.ends_with(pattern.substr(1));
}

bool under(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  return prefix.ends_with('/') || path.size() == prefix.size() || path[prefix.size()] == '/';
}

}  // namespace

bool is_credential_name(std::string_view text) {
  auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= 64 && plain(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

Result<Binding> Binding::parse(const json::object& object, const std::string& at) {
  JsonReader reader(object, at);
  auto bad = [&](std::string_view why, std::string next = {}) {
    return fail(ErrorKind::invalid_argument, "invalid_binding", fmt::format("{}: {}", at, why), std::move(next));
  };
  Binding b;
  b.credential = reader.text("credential", 1, 64);
  const std::string name = reader.text("name", 1, 300);
  b.port = static_cast<std::uint16_t>(reader.number("port", 1, 65535, 443));
  const auto methods = reader.texts("methods", 32, 32);
  const auto paths = reader.texts("paths", 64, 1024);
  b.placeholder = reader.text("placeholder", 8, 256, "");
  const bool bearer = reader.boolean("bearer", false);
  const auto basic = reader.optional_text("basic", 128);
  const auto query = reader.optional_text("query", 64);
  std::optional<std::string> header;
  std::string prefix;
  if (const auto* value = object.if_contains("header"); value && value->is_object()) {
    JsonReader inner(*reader.object("header"), at + ".header");
    header = inner.text("name", 1, 64);
    prefix = inner.text("prefix", 0, 64, "");
    TRY_VOID(inner.done());
  } else {
    header = reader.optional_text("header", 64);
  }
  TRY_VOID(reader.done());

  if (!is_credential_name(b.credential)) return bad("credential must be a name of [a-z0-9._-]");
  TRY(b.name, canonical_pattern(name));
  for (const std::string& method : methods) {
    if (!is_method_of_rules(method)) return bad("methods are upper-case words such as GET");
    b.methods.insert(method);
  }
  for (const std::string& path : paths) {
    TRY(std::string canonical, canonical_path(path));
    b.path_prefixes.push_back(std::move(canonical));
  }
  if (int{bearer} + int{basic.has_value()} + int{query.has_value()} + int{header.has_value()} != 1)
    return bad("exactly one of bearer, header, basic and query says where the secret goes");
  if (!printable(b.placeholder) || !printable(prefix)) return bad("placeholder and prefix are printable ASCII");
  if (bearer) {
    b.prefix = "Bearer ";
  } else if (basic) {
    if (!printable(*basic) || basic->find(':') != std::string::npos) return bad("the user of basic is printable and has no colon");
    b.place = Place::basic;
    b.user = *basic;
  } else if (query) {
    if (!printable(*query) || query->empty() || query->find_first_of("&=#% +") != std::string::npos)
      return bad("query must be a plain parameter name");
    b.place = Place::query;
    b.query_key = *query;
  } else {
    if (!is_token(*header) || is_reserved_header(*header))
      return bad("header must be a header name that does not frame or route the request");
    b.header = *header;
    b.prefix = prefix;
  }
  return b;
}

bool Binding::matches_host(std::string_view host, std::uint16_t to_port) const { return port == to_port && name_covers(name, host); }

bool Binding::matches(std::string_view host, std::uint16_t to_port, std::string_view method, std::string_view path) const {
  if (!matches_host(host, to_port)) return false;
  if (!methods.empty() && !methods.contains(std::string(method))) return false;
  return path_prefixes.empty() ||
         std::any_of(path_prefixes.begin(), path_prefixes.end(), [&](const std::string& p) { return under(path, p); });
}

std::string rendered(const Binding& binding, std::string_view secret) {
  switch (binding.place) {
    case Binding::Place::header:
      return binding.prefix + std::string(secret);
    case Binding::Place::basic: {
      std::string pair = binding.user + ":" + std::string(secret);
      std::string out = "Basic " + base64_encode(as_bytes(pair));
      wipe({reinterpret_cast<std::byte*>(pair.data()), pair.size()});
      return out;
    }
    case Binding::Place::query:
      return percent_encode(secret);
  }
  return {};
}

Result<> check_against(const Policy& policy, const std::vector<Binding>& bindings) {
  for (const Rule& rule : policy.rules()) {
    if (!rule.tunnel || rule.deny || rule.name.empty()) continue;
    for (const Binding& b : bindings) {
      const bool port =
          std::any_of(rule.ports.begin(), rule.ports.end(), [&](const PortRange& r) { return r.first <= b.port && b.port <= r.last; });
      const bool name = rule.name == b.name || name_covers(rule.name, b.name) || name_covers(b.name, rule.name);
      if (port && name)
        return fail(ErrorKind::invalid_argument, "credential_beside_tunnel",
                    fmt::format("rule {} tunnels {}, so the credential {} could not be put in there", rule.id, rule.name, b.credential),
                    "take tunnel off the rule, or the binding away");
    }
  }
  return {};
}

}  // namespace space::egress
