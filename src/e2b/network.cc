#include "e2b/network.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <fmt/format.h>

#include "base/encoding.h"

namespace space::e2b {
namespace {

constexpr std::size_t kMostRules = 1000;
constexpr std::string_view kEverything = "0.0.0.0/0";

// "1.1.1.1" and "10.0.0.0/8" as a CIDR; nothing when it is neither.
std::optional<std::string> cidr_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(text.substr(0, slash), error);
  if (error) return std::nullopt;
  const unsigned most = address.is_v4() ? 32 : 128;
  unsigned bits = most;
  if (slash != std::string::npos) {
    const auto [end, wrong] = std::from_chars(text.data() + slash + 1, text.data() + text.size(), bits);
    if (wrong != std::errc() || end != text.data() + text.size() || bits > most) return std::nullopt;
  }
  return fmt::format("{}/{}", address.to_string(), bits);
}

json::object range_rule(const std::string& cidr, bool deny) {
  return {{"action", deny ? "deny" : "allow"}, {"cidr", cidr}, {"ports", json::array{"1-65535"}}, {"protocol", "tcp"}};
}

// Passed through unread, as E2B does it: the client checks the certificate itself. Where a header has to be put in, the gateway reads.
json::object name_rule(const std::string& name, bool unread) {
  json::object rule{{"action", "allow"}, {"name", name}, {"ports", json::array{443}}, {"protocol", "https"}};
  if (unread) rule["tunnel"] = true;
  return rule;
}

bool is_bound(const json::array& bindings, std::string_view name) {
  return std::any_of(bindings.begin(), bindings.end(), [&](const json::value& binding) {
    const std::string_view bound = binding.get_object().at("name").get_string();
    return covers(bound, name) || covers(name, bound);
  });
}

}  // namespace

tl::unexpected<Error> invalid_network(std::string message) {
  return fail(ErrorKind::invalid_argument, "invalid_network", std::move(message));
}

bool covers(std::string_view pattern, std::string_view name) {
  return pattern == name || (pattern.starts_with("*.") && name.size() > pattern.size() - 1 && name.ends_with(pattern.substr(1)));
}

Result<std::string> egress_document(const json::object& network, bool internet, const json::array& bindings) {
  JsonReader r(network, "network");
  r.ignore_unknown();
  const std::vector<std::string> allowed = r.texts("allowOut", kMostRules, 300);
  std::vector<std::string> denied = r.texts("denyOut", kMostRules, 64);
  TRY_VOID(r.done());
  if (!internet) denied.emplace_back(kEverything);
  const bool nothing_else = std::find(denied.begin(), denied.end(), kEverything) != denied.end();
  json::array rules;
  for (const std::string& one : denied) {
    const auto cidr = cidr_of(one);
    if (!cidr)
      return invalid_network(
          fmt::format("denyOut takes addresses and ranges, and '{}' is neither", is_utf8(one) ? one.substr(0, 64) : "?"));
    if (!nothing_else) rules.push_back(range_rule(*cidr, true));
  }
  if (!nothing_else && !denied.empty() && !allowed.empty()) return invalid_network("allowOut beside denyOut needs 0.0.0.0/0 in denyOut");
  for (const std::string& one : allowed) {
    const auto cidr = cidr_of(one);
    if (!cidr && !nothing_else)
      return invalid_network(fmt::format("a name in allowOut ('{}') needs 0.0.0.0/0 in denyOut", is_utf8(one) ? one.substr(0, 64) : "?"));
    if (!nothing_else) continue;  // it may pass anyhow
    rules.push_back(cidr ? range_rule(*cidr, false) : name_rule(one, !is_bound(bindings, one)));
    if (!cidr) rules.push_back(json::object{{"action", "allow"}, {"name", one}, {"ports", json::array{80}}, {"protocol", "http"}});
  }
  json::object document{{"policy", json::object{{"mode", nothing_else ? "allowlist" : "open"}, {"rules", std::move(rules)}}}};
  if (!bindings.empty()) document["credentials"] = bindings;
  return json::serialize(document);
}

}  // namespace space::e2b
