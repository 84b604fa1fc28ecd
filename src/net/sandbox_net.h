// A sandbox's whole network: a namespace with `lo` and the TAP, no route out and no link to the host; the same addresses in
// every one. And the sockets made inside it for processes outside.
#pragma once

#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space::net {

struct SandboxNet {
  Fd net_namespace;
  Fd tap;  // IFF_TAP|IFF_NO_PI|IFF_VNET_HDR; the interface goes with its last descriptor
};

// Takes some milliseconds; from any thread.
Result<SandboxNet> make_sandbox_net();

// The gateway's ends, for IPv4 and IPv6: [TCP 15001, UDP 15053, TCP 15053]. All are bound; the TCP ones do not listen yet, so that
// the guest gets a reset until a gateway that is ready to accept calls listen(fd, kEgressBacklog). A second call succeeds once
// the sockets of the first are closed (else `conflict`/address_in_use).
Result<std::vector<Fd>> egress_sockets(const Fd& net_namespace);

// `count` unconnected, non-blocking TCP sockets for connections to the guest.
Result<std::vector<Fd>> guest_sockets(const Fd& net_namespace, int count);

}  // namespace space::net
