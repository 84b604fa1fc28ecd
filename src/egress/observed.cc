#include "egress/observed.h"

namespace space::egress {

void Observed::note(const Destination& to, Protocol protocol, std::string_view method) {
  const Key key{!to.name.empty() ? to.name : to.address ? to.address->text() : "", to.port, protocol};
  if (key.host.empty()) return;
  auto found = seen_.find(key);
  if (found == seen_.end()) {
    if (seen_.size() >= kMost) {
      complete_ = false;
      return;
    }
    found = seen_.emplace(key, std::set<std::string>()).first;
  }
  if (method.empty()) return;
  // What a rule cannot name is not left out in silence.
  if (found->second.size() < kMostMethods && is_method_of_rules(method))
    found->second.emplace(method);
  else if (!found->second.contains(std::string(method)))
    complete_ = false;
}

json::object Observed::to_json() const {
  json::array rules;
  bool complete = complete_;
  for (const auto& [key, methods] : seen_) {
    // A port of a host is handled in one way: with a rule for https beside it, one for tcp would have no effect.
    if (key.protocol == Protocol::tcp && seen_.contains({key.host, key.port, Protocol::https})) {
      complete = false;
      continue;
    }
    json::object rule;
    const bool bare = Address::parse(key.host).has_value();
    rule[bare ? "cidr" : "name"] = key.host;
    rule["ports"] = json::array{key.port};
    rule["protocol"] = key.protocol == Protocol::http ? "http" : key.protocol == Protocol::https ? "https" : "tcp";
    if (!methods.empty() && !bare) {  // a rule for addresses has no methods
      json::array list;
      for (const std::string& method : methods) list.emplace_back(method);
      rule["methods"] = std::move(list);
    }
    rules.push_back(std::move(rule));
  }
  return {{"policy", json::object{{"mode", "allowlist"}, {"rules", std::move(rules)}}}, {"complete", complete}};
}

}  // namespace space::egress
