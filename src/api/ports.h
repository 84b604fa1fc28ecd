// Servers inside sandboxes, reached through the API's address: by path (/v1/sandboxes/{id}/ports/{port}/…) and, where the server has
// a domain for it, by host name (PORT-ID.domain). HTTP and WebSocket. Stands in front of the router: what follows the port belongs to
// the guest's server. A port is private (an API key, or a traffic token that node checks) unless it was made public.
#pragma once

#include <string>

#include "api/services.h"
#include "http/router.h"

namespace space::api {

inline constexpr const char* kTrafficToken = "Space-Traffic-Token";  // the field of a request that carries it

// Serves what is a port's and gives everything else to `next`. `domain`: "" for none.
http::Handler with_ports(Services& services, http::Handler next, std::string domain);

// What opens the private ports of a sandbox beside a key, as node makes it. The same after pause and suspend, another for each fork.
Task<std::string> traffic_token(Services& services, std::string sandbox, std::string tenant);

}  // namespace space::api
