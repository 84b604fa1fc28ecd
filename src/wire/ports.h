// How a server inside a sandbox is named from outside: by path, /v1/sandboxes/{id}/ports/{port}/…, or by host name,
// PORT-ID.domain. Both are strict: one spelling for each, so that everybody who routes by them reads the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace space::wire {

struct PortAddress {
  std::string sandbox;  // is_id
  std::uint16_t port = 0;
  std::string target;  // what the guest's server is asked for: begins with '/', otherwise as the client sent it
};

// A request target in origin form, not decoded. nullopt: this is no path of a port, or a wrong one.
std::optional<PortAddress> port_of_path(std::string_view target);
bool is_port_path(std::string_view target);  // looks like one: its first segments are those

// A Host field. `domain` is what stands behind the first dot ("sandbox.example.org"); a port number may follow. No upper case, no
// trailing dot, no leading zeros. `target` is left empty.
std::optional<PortAddress> port_of_host(std::string_view host, std::string_view domain);

}  // namespace space::wire
