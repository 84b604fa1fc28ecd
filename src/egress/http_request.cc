#include "egress/http_request.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/encoding.h"
#include "egress/event.h"
#include "egress/name.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestTarget = 16 << 10;

tl::unexpected<Refusal> bad(std::string why, int status = 400) {
  return tl::unexpected<Refusal>(
      Refusal{status,
              Error{ErrorKind::invalid_argument, "bad_request", "the egress gateway refused this request: " + std::move(why),
                    "send plain HTTP as RFC 9110 and 9112 define it"},
              "", false});
}

tl::unexpected<Refusal> misdirected(const std::string& asked, const Destination& to) {
  const std::string host = !to.name.empty() ? to.name : to.address ? to.address->text() : "?";
  return tl::unexpected<Refusal>(
      Refusal{421,
              Error{ErrorKind::invalid_argument, "host_mismatch",
                    fmt::format("the egress gateway refused this request: it is for {}, on a connection to {} port {}",
                                loggable(asked, 100), host, to.port),
                    "connect to the host that the request names"},
              "", true});
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool lists_token(std::string_view list, std::string_view wanted) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (http::equal_no_case(item, wanted)) return true;
  }
  return false;
}

// The target in origin form; absolute-form must name the same host as Host does.
Checked<std::string> origin_form(const http::Head& head, const HostPort& host, bool tls) {
  std::string_view target = head.target;
  if (target.empty() || target.size() > kLongestTarget) return bad("its target is empty or longer than 16384 bytes");
  for (char c : target)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f || c == '#' || c == '\\' || c == '"' || c == '<' ||
        c == '>')
      return bad("its target holds a byte that targets do not have");
  if (target == "*") {
    if (head.method != "OPTIONS") return bad("only OPTIONS may have the target *");
    return std::string(target);
  }
  if (target.starts_with('/')) {
    // "//host/…" is a path here and another host to a careless reader.
    if (target.starts_with("//")) return bad("its path begins with two slashes");
    return std::string(target);
  }
  const std::string_view scheme = tls ? "https://" : "http://";
  if (target.size() <= scheme.size() || !http::equal_no_case(target.substr(0, scheme.size()), scheme))
    return bad("its target is neither a path nor a URL of this scheme");
  target.remove_prefix(scheme.size());
  const auto end = target.find_first_of("/?");
  const auto named = parse_authority(target.substr(0, end), tls ? 443 : 80);
  if (!named) return bad("its URL names no plain host");
  if (named->name != host.name || named->address != host.address || named->port != host.port)
    return bad("its URL names another host than Host does");
  std::string rest(end == std::string_view::npos ? std::string_view() : target.substr(end));
  if (!rest.starts_with('/')) rest.insert(0, "/");
  if (rest.starts_with("//")) return bad("its path begins with two slashes");
  return rest;
}

bool wants_websocket(const http::Head& head) {
  return head.method == "GET" && head.minor == 1 && head.framing == http::Framing::none && head.headers.count("Upgrade") == 1 &&
         http::equal_no_case(head.headers.get("Upgrade"), "websocket") && lists_token(head.headers.get("Connection"), "upgrade") &&
         head.headers.count("Sec-WebSocket-Key") == 1 && head.headers.get("Sec-WebSocket-Version") == "13";
}

}  // namespace

Result<HostPort> parse_authority(std::string_view text, std::uint16_t default_port) {
  auto wrong = [&] { return fail(ErrorKind::invalid_argument, "invalid_name", fmt::format("'{}' is not a host", loggable(text, 80))); };
  HostPort out;
  out.port = default_port;
  std::string_view host = text, port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return wrong();
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return wrong();
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
    auto address = Address::parse(host);
    if (!address || host.find(':') == std::string_view::npos) return wrong();
    out.address = *address;
  } else {
    const auto colon = text.find(':');
    has_port = colon != std::string_view::npos;
    host = text.substr(0, colon);
    if (has_port) port = text.substr(colon + 1);
    if (auto address = Address::parse(host)) {
      out.address = *address;
    } else {
      TRY(out.name, canonical_name(host));
    }
  }
  if (has_port) {
    if (port.empty() || port.size() > 5 || port.front() == '0' ||
        !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return wrong();
    unsigned number = 0;
    for (char c : port) number = number * 10 + static_cast<unsigned>(c - '0');
    if (number > 65535) return wrong();
    out.port = static_cast<std::uint16_t>(number);
  }
  return out;
}

Checked<CheckedRequest> check_request(const http::Head& head, const Destination& to, bool tls, const Settings& settings) {
  CheckedRequest out;
  out.method = head.method;
  if (!is_token(head.method)) return bad("its method is no word");
  if (head.method == "CONNECT") return bad("CONNECT would make a proxy of it, and it is none", 405);
  if (head.method == "TRACE" || head.method == "TRACK") return bad("TRACE would show what is added to requests on the way", 405);
  if (head.method == "PRI") return bad("HTTP/2 is spoken inside TLS alone", 400);
  if (head.headers.count("Host") != 1) return bad("exactly one Host is needed");
  const std::string host_text(head.headers.get("Host"));
  const auto host = parse_authority(host_text, tls ? 443 : 80);
  if (!host) return bad("its Host is no plain host name and port");
  if (host->port != to.port) return misdirected(host_text, to);
  out.to = to;
  if (!to.name.empty() && host->name != to.name) return misdirected(host_text, to);
  if (to.name.empty() && host->address && host->address != to.address) return misdirected(host_text, to);
  out.host = out.host_name = host->name;
  if (host->address) out.host = host->address->is_v4() ? host->address->text() : "[" + host->address->text() + "]";
  if (to.port != (tls ? 443 : 80)) out.host += fmt::format(":{}", to.port);
  auto target = origin_form(head, *host, tls);
  if (!target) return tl::unexpected(std::move(target).error());
  out.target = std::move(*target);
  const std::string raw_path = out.target.substr(0, out.target.find('?'));
  out.path = raw_path;
  const Policy& policy = *settings.policy;
  const bool strict = policy.reads_paths(out.to) || std::any_of(settings.bindings.begin(), settings.bindings.end(), [&](const Binding& b) {
                        return !b.path_prefixes.empty() && b.matches_host(out.to.name, out.to.port);
                      });
  if (strict && out.target != "*") {
    const auto canonical = canonical_path(raw_path);
    if (!canonical) return bad("a rule looks at paths, and " + canonical.error().message);
    // One form for the rule and for the upstream: escapes may stay, anything that moves segments may not.
    if (*canonical != raw_path && percent_decode(raw_path) != *canonical)
      return bad("a rule looks at paths, and this one has dot segments or empty ones");
    out.path = *canonical;
  }
  const bool reads_methods = policy.reads_methods(out.to);
  if (reads_methods && (head.method == "GET" || head.method == "HEAD") && head.framing != http::Framing::none)
    return bad("a rule looks at methods, and GET and HEAD have no body then");
  Verdict verdict = policy.request(to, head.method, out.path);
  if (verdict.allowed && to.name.empty() && !host->name.empty()) {
    // An address that is allowed: the name may be anything but a denied one. It allows nothing, since the guest made it up.
    const Verdict named = policy.request({host->name, to.address, to.port}, head.method, out.path);
    if (!named.allowed) verdict = named;
  }
  if (!verdict.allowed)
    return tl::unexpected<Refusal>(
        Refusal{403,
                Error{ErrorKind::permission_denied, "egress_denied",
                      fmt::format("the egress gateway of this sandbox refused {} {}: {}", loggable(head.method, 32),
                                  host->name.empty() ? host_text : host->name, verdict.reason),
                      "ask whoever runs the sandbox to allow it; `space egress explain` tells which rule decides"},
                verdict.rule, false});
  out.rule = verdict.rule;
  out.monitored = verdict.rule.empty() && policy.monitor();
  out.websocket = wants_websocket(head);
  return out;
}

void strip_request(http::Headers& headers, bool rules_read_methods) {
  static constexpr std::string_view kForged[] = {
      "Forwarded",      "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
      "X-Real-IP",      "X-Original-URL",  "X-Rewrite-URL",    "X-Original-Host",   "X-Host",           "Via",
      "HTTP2-Settings", "Expect"};
  static constexpr std::string_view kOverrides[] = {"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"};
  strip_response(headers);
  for (const std::string_view name : kForged) headers.remove(name);
  if (rules_read_methods)
    for (const std::string_view name : kOverrides) headers.remove(name);
}

void strip_response(http::Headers& headers) {
  // What Connection names is meant for one hop. Fields that say where a message ends or goes cannot be dropped that way.
  std::vector<std::string> drop;
  for (const auto& [name, value] : headers.fields())
    if (http::is_hop_by_hop(name)) drop.push_back(name);
  for (const auto& [name, value] : headers.fields()) {
    if (!http::equal_no_case(name, "Connection")) continue;
    for (const auto& [other, unused] : headers.fields())
      if (!http::equal_no_case(other, "Host") && lists_token(value, other)) drop.push_back(other);
  }
  for (const std::string& name : drop) headers.remove(name);
  headers.remove("Alt-Svc");  // another address for the same name: not through here
}

http::Response refusal_response(const Refusal& refusal) {
  http::Response response = http::problem(refusal.error);
  response.status = refusal.status;
  if (auto body = parse_json_object(response.body)) {
    (*body)["status"] = refusal.status;
    (*body)["title"] = http::reason_phrase(refusal.status);
    if (!refusal.rule.empty()) (*body)["rule"] = refusal.rule;
    response.body = json::serialize(*body);
  }
  response.headers.set("Server", "space-egress");
  return response;
}

}  // namespace space::egress
