// Servers inside a sandbox, reached from outside: `/v1/sandboxes/{id}/ports/{port}` and whatever stands behind it, HTTP and
// WebSocket. It stands in front of node's router, because the rest of such a target belongs to the guest's server and is not ours
// to judge. What comes back is the guest's word, carried with constant memory and inside the rules of HTTP, nothing more.
#pragma once

#include <sys/types.h>

#include "node/routes.h"

namespace space::node {

// Wraps node's router. Who may pass, the first that is there: `Space-Tenant` with the sandbox's tenant (api has authenticated the
// caller), `Space-Port-Access: public` (api says that this port is public), `Space-Traffic-Token` (checked here). Everything else is
// not_found/sandbox_not_found or unauthenticated/traffic_token_invalid. `Space-Port-Host` is the Host that the guest sees.
// `Space-Port-Tls: yes`: the guest's server speaks TLS itself. Its certificate is not looked at, for whoever has the guest has its key; one
// that begins no TLS in 10 s is unavailable/port_no_tls.
// At most 256 requests a sandbox at a time: resource_exhausted/too_many_port_requests.
http::Handler with_ports(const http::Router& router, RouteParts& parts, uid_t api_uid);

}  // namespace space::node
