// Whether one request of a guest may pass, and in which single form: independent of HTTP/1 or 2. Strict: what two readers could
// read differently is refused (docs/egress.md, "Requests").
#pragma once

#include <string>
#include <string_view>

#include "egress/settings.h"
#include "http/head.h"

namespace space::egress {

// An answer that the gateway gives itself.
struct Refusal {
  int status = 403;
  Error error;
  std::string rule;       // that decided, for the audit log
  bool security = false;  // an attempt to mean two hosts: reported as such
};

struct CheckedRequest {
  std::string method;
  std::string target;      // origin form, as it goes out
  std::string path;        // canonical where rules look at paths, else as sent without the query
  std::string host;        // the Host field as it goes out
  std::string host_name;   // canonical; "" when Host is an address
  Destination to;          // where the connection goes: never what Host said
  bool websocket = false;  // asks for an upgrade to it
  std::string rule;        // that allows it
  bool monitored = false;  // allowed only because the policy monitors
};

template <class T>
using Checked = tl::expected<T, Refusal>;

// The host and port of a Host field or an authority, canonical. `default_port` when it names none.
struct HostPort {
  std::string name;  // "" when it is an address
  std::optional<Address> address;
  std::uint16_t port = 0;
};
Result<HostPort> parse_authority(std::string_view text, std::uint16_t default_port);

// `to`: where the connection goes. `tls`: it was inside TLS that ends here.
Checked<CheckedRequest> check_request(const http::Head& head, const Destination& to, bool tls, const Settings& settings);

// Drops what must not be passed on: hop-by-hop fields and those that Connection names, what tells a server another client, host
// or path than the real ones, and with `rules_read_methods` what overrides the method.
void strip_request(http::Headers& headers, bool rules_read_methods);
void strip_response(http::Headers& headers);

// What the guest is told: application/problem+json with who refused, why and what to do.
http::Response refusal_response(const Refusal& refusal);

}  // namespace space::egress
