// Between our addresses and the kernel's.
#pragma once

#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

#include "base/fd.h"
#include "egress/address.h"

namespace space::egress {

struct Endpoint {
  Address address;
  std::uint16_t port = 0;
  std::string text() const;  // "1.2.3.4:80", "[2001:db8::1]:80"
  auto operator<=>(const Endpoint&) const = default;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const Endpoint& endpoint);               // AF_INET for IPv4
std::optional<Endpoint> from_socket_address(const SocketAddress& from);  // AF_INET and AF_INET6

// What the guest dialled, as the kernel's connection tracking kept it across the redirect (SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST).
Result<Endpoint> original_destination(int socket);

// "1.2.3.4:53" or "[::1]:53".
Result<Endpoint> parse_endpoint(std::string_view text);

}  // namespace space::egress
