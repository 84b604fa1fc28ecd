// Connections that a guest still believes in after a load, while nobody stands at their other end any more: the host that it was
// saved on has closed them, or they belong to the sandbox that it was forked from. Ended here, so that programs meet a reset at
// once and not a silence. Only what goes over the wire to the host: connections between the guest's own programs go on.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace space::agent {

struct WireConnection {
  std::uint64_t inode = 0;  // of its socket
  std::uint16_t local_port = 0, remote_port = 0;
};

// Those of a table as /proc/net/tcp and /proc/net/tcp6 have it (proc(5)) whose own end is the guest's address on the wire, that have a
// socket and are no listeners. Lines that are none are skipped.
std::vector<WireConnection> connections_on_wire(std::string_view table);

// Resets all of them but the one to the agent from `keep_port` of the host; gives how many. Users' processes should stand still. Some
// milliseconds; nothing at all is searched for where there is no such connection.
std::size_t end_old_connections(std::uint16_t keep_port);

}  // namespace space::agent
