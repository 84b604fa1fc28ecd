#include "egress/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

#include "base/encoding.h"
#include "egress/name.h"

namespace space::egress {
namespace {

constexpr std::size_t kMostRules = 20'000;

bool covers(const std::vector<PortRange>& ports, std::uint16_t port) {
  return std::any_of(ports.begin(), ports.end(), [port](const PortRange& r) { return r.first <= port && port <= r.last; });
}

// The ports that a rule means when it names none.
std::vector<PortRange> default_ports(Protocol protocol) {
  switch (protocol) {
    case Protocol::http:
      return {{80, 80}};
    case Protocol::https:
      return {{443, 443}};
    case Protocol::any:
      return {{80, 80}, {443, 443}};
    case Protocol::tcp:
      return {};
  }
  return {};
}

Result<PortRange> parse_port(const json::value& value) {
  PortRange range;
  auto number = [](std::string_view text, std::uint16_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out != 0;
  };
  bool ok = false;
  if (value.is_int64() && value.get_int64() >= 1 && value.get_int64() <= 65535) {
    range.first = range.last = static_cast<std::uint16_t>(value.get_int64());
    ok = true;
  } else if (value.is_string()) {
    const std::string_view text = value.get_string();
    const auto dash = text.find('-');
    ok = dash != std::string_view::npos && number(text.substr(0, dash), range.first) && number(text.substr(dash + 1), range.last) &&
         range.first <= range.last;
  }
  if (!ok)
    return fail(ErrorKind::invalid_argument, "invalid_policy", "ports must hold numbers from 1 to 65535 or ranges such as \"8000-8010\"");
  return range;
}

Result<Rule> parse_rule(const json::object& object, std::size_t index) {
  const std::string at = fmt::format("rules[{}]", index);
  JsonReader reader(object, at);
  Rule rule;
  rule.id = reader.text("id", 1, 64, fmt::format("r{}", index + 1));
  const std::string action = reader.text("action", 4, 5, "allow");
  const auto name = reader.optional_text("name", 300);
  const auto cidr = reader.optional_text("cidr", 64);
  const std::string protocol = reader.text("protocol", 3, 5, "any");
  const auto methods = reader.texts("methods", 32, 32);
  const auto paths = reader.texts("paths", 256, 1024);
  rule.tunnel = reader.boolean("tunnel", false);
  const json::array* ports = reader.array("ports", 64);
  TRY_VOID(reader.done());
  auto bad = [&](std::string why, std::string next = {}) {
    return fail(ErrorKind::invalid_argument, "invalid_policy", fmt::format("{}: {}", at, why), std::move(next));
  };

  if (action != "allow" && action != "deny") return bad("action must be allow or deny");
  rule.deny = action == "deny";
  if (name.has_value() == cidr.has_value()) return bad("a rule has either a name or a cidr");
  if (name) {
    TRY(rule.name, canonical_pattern(*name));
  } else {
    TRY(rule.cidr, Cidr::parse(*cidr));
  }
  if (protocol == "http")
    rule.protocol = Protocol::http;
  else if (protocol == "https")
    rule.protocol = Protocol::https;
  else if (protocol == "tcp")
    rule.protocol = Protocol::tcp;
  else if (protocol != "any")
    return bad("protocol must be any, http, https or tcp");
  if (ports) {
    for (const json::value& value : *ports) {
      TRY(PortRange range, parse_port(value));
      rule.ports.push_back(range);
    }
  }
  if (rule.ports.empty() && !rule.deny) {
    if (rule.protocol == Protocol::tcp) return bad("a tcp rule must name its ports", "add \"ports\": [22]");
    rule.ports = default_ports(rule.protocol);
  }
  for (const std::string& method : methods) {
    if (!is_method_of_rules(method)) return bad("methods are upper-case words such as GET");
    rule.methods.insert(method);
  }
  for (const std::string& path : paths) {
    TRY(std::string canonical, canonical_path(path));
    rule.path_prefixes.push_back(std::move(canonical));
  }
  const bool reads_requests = !rule.methods.empty() || !rule.path_prefixes.empty();
  if (rule.tunnel && reads_requests)
    return bad("a tunnel passes bytes unread, so it cannot look at methods or paths", "leave out tunnel, or methods and paths");
  if (rule.tunnel && rule.protocol == Protocol::http) return bad("a tunnel is for TLS or other TCP");
  if (rule.protocol == Protocol::tcp && reads_requests) return bad("a tcp rule cannot look at methods or paths");
  if (rule.cidr && reads_requests) return bad("a rule with methods or paths needs a name");
  return rule;
}

// A prefix matches whole segments: "/v1" covers "/v1" and "/v1/x", not "/v10"; "/v1/" covers what is below it.
bool has_prefix(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  return prefix.ends_with('/') || path.size() == prefix.size() || path[prefix.size()] == '/';
}

bool matches_request(const Rule& rule, const std::string_view* method, const std::string_view* path) {
  if (method && !rule.methods.empty() && !rule.methods.contains(std::string(*method))) return false;
  if (path && !rule.path_prefixes.empty())
    return std::any_of(rule.path_prefixes.begin(), rule.path_prefixes.end(), [&](const std::string& p) { return has_prefix(*path, p); });
  return true;
}

Verdict::Handling handling_of(const Rule& rule, std::uint16_t port) {
  if (rule.tunnel) return Verdict::Handling::tunnel;
  switch (rule.protocol) {
    case Protocol::http:
      return Verdict::Handling::inspect_http;
    case Protocol::https:
      return Verdict::Handling::terminate_tls;
    case Protocol::tcp:
      return Verdict::Handling::splice;
    case Protocol::any:
      return port == 80 ? Verdict::Handling::inspect_http : Verdict::Handling::terminate_tls;
  }
  return Verdict::Handling::refuse;
}

}  // namespace

bool is_method_of_rules(std::string_view method) {
  return !method.empty() && method.size() <= 32 &&
         std::all_of(method.begin(), method.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '-'; });
}

Result<std::string> canonical_path(std::string_view raw) {
  auto bad = [&](std::string_view why) {
    return fail(ErrorKind::invalid_argument, "invalid_path", fmt::format("the path {}", why), "send the path in its plain form");
  };
  if (!raw.starts_with('/') || raw.size() > 8192) return bad("must begin with '/' and have at most 8192 bytes");
  std::string decoded;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const auto c = static_cast<unsigned char>(raw[i]);
    if (c <= 0x20 || c == 0x7f || c == '\\' || c == '?' || c == '#') return bad("holds a byte that paths do not have");
    if (c != '%') {
      decoded.push_back(static_cast<char>(c));
      continue;
    }
    const auto byte = percent_decode(raw.substr(i, 3));
    if (!byte || byte->size() != 1) return bad("holds a broken escape");
    const auto d = static_cast<unsigned char>((*byte)[0]);
    if (d == '/' || d == '\\' || d == '%' || d < 0x20 || d == 0x7f) return bad("hides a separator or a control byte behind an escape");
    decoded.push_back(static_cast<char>(d));
    i += 2;
  }
  // Some servers decode overlong forms, in which "%c0%ae" is a dot.
  if (!is_utf8(decoded)) return bad("is not UTF-8");
  std::vector<std::string_view> segments;
  std::string_view rest = std::string_view(decoded).substr(1);
  bool directory = false;
  for (;;) {
    const auto slash = rest.find('/');
    const std::string_view segment = rest.substr(0, slash);
    // Servers that drop parameters (";x") from segments would see a dot segment where no rule did.
    const std::string_view bare = segment.substr(0, segment.find(';'));
    if (bare.size() != segment.size() && (bare == "." || bare == ".." || bare.empty()))
      return bad("hides a dot segment or an empty one before a ';'");
    directory = segment == "." || segment == ".." || segment.empty();
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (segment != "." && !segment.empty()) {
      segments.push_back(segment);
    }
    if (slash == std::string_view::npos) break;
    rest = rest.substr(slash + 1);
  }
  std::string out;
  for (std::string_view segment : segments) out.append("/").append(segment);
  if (directory || out.empty()) out.push_back('/');
  return out;
}

std::shared_ptr<const Policy> Policy::none() {
  static const auto policy = std::make_shared<const Policy>();
  return policy;
}

Result<std::shared_ptr<const Policy>> Policy::parse(const json::object& object) {
  auto policy = std::make_shared<Policy>();
  JsonReader reader(object);
  const std::string mode = reader.text("mode", 4, 9);
  policy->monitor_ = reader.boolean("monitor", false);
  const json::array* rules = reader.array("rules", kMostRules);
  TRY_VOID(reader.done());
  if (mode == "allowlist")
    policy->mode_ = Mode::allowlist;
  else if (mode == "open")
    policy->mode_ = Mode::open;
  else if (mode != "none")
    return fail(ErrorKind::invalid_argument, "invalid_policy", "mode must be none, allowlist or open");
  std::set<std::string> ids;
  if (rules) {
    for (std::size_t i = 0; i < rules->size(); ++i) {
      if (!(*rules)[i].is_object())
        return fail(ErrorKind::invalid_argument, "invalid_policy", fmt::format("rules[{}] must be an object", i));
      TRY(Rule rule, parse_rule((*rules)[i].get_object(), i));
      if (!ids.insert(rule.id).second)
        return fail(ErrorKind::invalid_argument, "invalid_policy", fmt::format("two rules are called {}", rule.id));
      policy->rules_.push_back(std::move(rule));
    }
  }
  for (std::uint32_t i = 0; i < policy->rules_.size(); ++i) {
    const Rule& rule = policy->rules_[i];
    policy->denies_names_ = policy->denies_names_ || (rule.deny && !rule.cidr);
    if (rule.cidr)
      policy->ranges_.push_back(i);
    else if (rule.name.starts_with("*."))
      policy->wildcard_[rule.name.substr(2)].push_back(i);
    else
      policy->exact_[rule.name].push_back(i);
  }
  return policy;
}

template <class Visit>
void Policy::each_match(const Destination& to, Visit visit) const {
  auto visit_all = [&](const auto& table, std::string_view key) {
    if (const auto found = table.find(key); found != table.end())
      for (std::uint32_t i : found->second) visit(rules_[i]);
  };
  if (!to.name.empty()) {
    visit_all(exact_, to.name);
    if (!wildcard_.empty())
      for (auto dot = to.name.find('.'); dot != std::string::npos; dot = to.name.find('.', dot + 1))
        visit_all(wildcard_, std::string_view(to.name).substr(dot + 1));
  }
  if (to.address)
    for (std::uint32_t i : ranges_)
      if (rules_[i].cidr->contains(*to.address)) visit(rules_[i]);
}

bool Policy::resolvable(std::string_view name) const {
  if (mode_ == Mode::none) return false;
  Destination to;
  to.name = name;
  bool allowed = mode_ == Mode::open || monitor_, denied = false;
  each_match(to, [&](const Rule& rule) {
    // A deny rule that only covers some ports, methods or paths leaves the name itself alone.
    if (rule.deny)
      denied = denied || (rule.ports.empty() && rule.methods.empty() && rule.path_prefixes.empty() && rule.protocol == Protocol::any);
    else
      allowed = true;
  });
  return allowed && !denied;
}

Verdict Policy::decide(const Destination& to, const std::string_view* method, const std::string_view* path) const {
  if (mode_ == Mode::none) return {false, "", "the policy is none", Verdict::Handling::refuse};
  const auto reads = [&](const Rule& rule) {
    const auto handling = handling_of(rule, to.port);
    return handling == Verdict::Handling::terminate_tls || handling == Verdict::Handling::inspect_http;
  };
  const Rule* allow = nullptr;
  bool read_here = false;               // by any rule, so that what passes unread elsewhere allows no request
  std::array<const Rule*, 4> denies{};  // the first of each protocol
  each_match(to, [&](const Rule& rule) {
    if (!rule.ports.empty() && !covers(rule.ports, to.port)) return;
    if (rule.deny) {
      // Before a request is known, a rule about methods or paths cannot refuse the connection.
      const bool needs_request = !rule.methods.empty() || !rule.path_prefixes.empty();
      if (needs_request && !method) return;
      const Rule*& first = denies[static_cast<std::size_t>(rule.protocol)];
      if (matches_request(rule, method, path) && !first) first = &rule;
      return;
    }
    read_here = read_here || reads(rule);
    if (!matches_request(rule, method, path)) return;
    // Among allow rules the one that reads most wins, so that a tunnel or `tcp` beside a narrower rule does not open it.
    if (!allow || (!reads(*allow) && reads(rule))) allow = &rule;
  });
  if (method && allow && read_here && !reads(*allow)) allow = nullptr;
  // Put together by hand: this is done for every request.
  const auto because = [](std::string_view what, const Rule& rule) {
    const std::string shown = rule.cidr ? rule.cidr->text() : std::string();
    const std::string& names = rule.cidr ? shown : rule.name;
    std::string out;
    out.reserve(what.size() + rule.id.size() + 7 + names.size());
    return out.append(what).append(rule.id).append(" names ").append(names), out;
  };
  // What is read is known to be HTTP, or HTTP inside TLS: a rule that denies another protocol leaves it alone. What passes unread may be
  // anything.
  const auto handling = allow ? handling_of(*allow, to.port) : Verdict::Handling::tunnel;
  const auto spares = [handling](Protocol denied) {
    return (handling == Verdict::Handling::inspect_http && denied != Protocol::http) ||
           (handling == Verdict::Handling::terminate_tls && denied != Protocol::https);
  };
  for (const Protocol denied : {Protocol::any, Protocol::http, Protocol::https, Protocol::tcp})
    if (const Rule* deny = denies[static_cast<std::size_t>(denied)]; deny && (denied == Protocol::any || !spares(denied)))
      return {false, deny->id, because("deny rule ", *deny), Verdict::Handling::refuse};
  if (allow) return {true, allow->id, because("allow rule ", *allow), handling};
  // Where a name is denied, requests in the clear are read: another name's connection must not carry one for it.
  if (mode_ == Mode::open)
    return {true, "", "the policy is open", denies_names_ && to.port == 80 ? Verdict::Handling::inspect_http : Verdict::Handling::tunnel};
  if (monitor_)
    return {true, "", "no rule allows it; recorded only, because the policy monitors",
            to.port == 80 ? Verdict::Handling::inspect_http : Verdict::Handling::tunnel};
  return {false, "", to.name.empty() ? "no CIDR rule covers this address" : "no rule allows this name, port and request",
          Verdict::Handling::refuse};
}

bool Policy::reads_paths(const Destination& to) const {
  bool found = false;
  each_match(to, [&](const Rule& rule) { found = found || !rule.path_prefixes.empty(); });
  return found;
}

bool Policy::reads_methods(const Destination& to) const {
  bool found = false;
  each_match(to, [&](const Rule& rule) { found = found || !rule.methods.empty(); });
  return found;
}

Verdict Policy::connect(const Destination& to) const { return decide(to, nullptr, nullptr); }
Verdict Policy::request(const Destination& to, std::string_view method, std::string_view path) const { return decide(to, &method, &path); }

}  // namespace space::egress
