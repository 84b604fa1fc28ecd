// Where a credential is put in: a host, a port, methods and path prefixes, and the place in the request. The binding names the
// credential; it never holds the secret.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "egress/policy.h"

namespace space::egress {

struct Binding {
  enum class Place { header, basic, query };

  std::string credential;  // is_credential_name
  std::string name;        // canonical, or "*.canonical"
  std::uint16_t port = 443;
  std::set<std::string> methods;           // empty: all
  std::vector<std::string> path_prefixes;  // empty: all; as in Rule
  Place place = Place::header;
  std::string header = "Authorization";  // header and basic: whatever the guest sent in it is dropped
  std::string prefix;                    // header: in front of the secret, such as "Bearer "
  std::string user;                      // basic
  std::string query_key;                 // query
  std::string placeholder;               // "": the value is put in unasked; else only in place of this text

  // JSON: {"credential","name","port","methods","paths","placeholder", and one of "bearer":true, "header":"X-Key" or
  // {"name","prefix"}, "basic":"user", "query":"key"}. Unknown fields are refused.
  static Result<Binding> parse(const json::object& object, const std::string& at);

  bool matches_host(std::string_view host, std::uint16_t to_port) const;
  bool matches(std::string_view host, std::uint16_t to_port, std::string_view method, std::string_view path) const;
};

bool is_credential_name(std::string_view text);  // [a-z0-9][a-z0-9._-]{0,63}

// The text of what stands in the request: "Bearer s3cr3t", "Basic dXNlcjpzM2NyM3Q=", or the percent-encoded value of a query.
std::string rendered(const Binding& binding, std::string_view secret);

// A tunnel is not read, so nothing can be put into it: such a pair is refused when it is set.
Result<> check_against(const Policy& policy, const std::vector<Binding>& bindings);

}  // namespace space::egress
