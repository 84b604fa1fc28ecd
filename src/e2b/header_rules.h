// The header rules of E2B's network options: "put this header into requests to that host". A header's value is a secret: it becomes
// a credential of the gateway's at once, is bound to the host there, and is shown as "***" from then on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "e2b/state.h"

namespace space::e2b {

struct HeaderRule {
  std::string host, header;    // the host may be "*.name"
  std::string value;           // a secret
  std::string secret, prefix;  // or, with `secret`: a secret of the tenant's by name, and what stands in front of it
};
// Checked as E2B does (≤ 10 hosts, ≤ 20 headers each, names and lengths), and for what this server can do: values of 8 bytes or
// more, hosts that do not cover one another, ${e2b.secrets.NAME} at the end of a value. `rules`: as the client sent it, or null.
Result<std::vector<HeaderRule>> read_header_rules(const json::value* rules);

// `rules` as it is kept and shown: no value in it but placeholders.
json::object redacted_rules(const json::value* rules);

// Credentials that were made and are not in a sandbox's document yet: a sweep leaves them while this lives. Call `keep` when they
// are; without it they go when this ends. `state` outlives it.
class PlacedRules {
 public:
  PlacedRules(State& state, std::string tenant) : state_(state), tenant_(std::move(tenant)) {}
  PlacedRules(const PlacedRules&) = delete;
  PlacedRules& operator=(const PlacedRules&) = delete;
  ~PlacedRules();
  void keep() { kept_ = true; }
  // One of the rules; egress_unavailable, and the gateway's own words.
  Task<> place(HeaderRule rule);
  const json::array& bindings() const { return bindings_; }  // for egress_document

 private:
  State& state_;
  std::string tenant_;
  json::array bindings_;
  std::vector<std::string> made_;  // names of credentials
  bool kept_ = false;
};
// Checks the rules in the network options, makes their credentials, and leaves in `network` what is shown.
Task<std::unique_ptr<PlacedRules>> place_header_rules(State& state, std::string tenant, json::object& network);

// Removes the tenant's credentials that header rules made and no sandbox's document names any more. Errors are logged.
asio::awaitable<void> sweep_header_rules(State& state, std::string tenant);

// A secret's way to the gateway: nothing of it stays here. invalid_argument for a value that the gateway does not take.
Task<json::object> put_credential(State& state, std::string tenant, std::string name, std::string& value);
bool is_of_header_rule(std::string_view credential);

}  // namespace space::e2b
