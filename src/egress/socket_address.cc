#include "egress/socket_address.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

namespace space::egress {

std::string Endpoint::text() const { return fmt::format(fmt::runtime(address.is_v4() ? "{}:{}" : "[{}]:{}"), address.text(), port); }

SocketAddress to_socket_address(const Endpoint& endpoint) {
  SocketAddress out;
  const auto& bytes = endpoint.address.bytes();
  if (endpoint.address.is_v4()) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(out.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, bytes.data() + 12, 4);
    out.length = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    std::memcpy(&v6.sin6_addr, bytes.data(), 16);
    out.length = sizeof v6;
  }
  return out;
}

std::optional<Endpoint> from_socket_address(const SocketAddress& from) {
  if (from.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from.storage);
    std::array<std::uint8_t, 4> bytes;
    std::memcpy(bytes.data(), &v4.sin_addr, 4);
    return Endpoint{Address::v4(bytes), ntohs(v4.sin_port)};
  }
  if (from.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from.storage);
    std::array<std::uint8_t, 16> bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, 16);
    return Endpoint{Address::v6(bytes), ntohs(v6.sin6_port)};
  }
  return std::nullopt;
}

Result<Endpoint> original_destination(int socket) {
  SocketAddress local;
  if (::getsockname(socket, local.get(), &local.length) != 0) return fail_errno(errno, "getsockname");
  const auto mine = from_socket_address(local);
  if (!mine) return fail(ErrorKind::internal, "not_a_tcp_socket", "this socket has no Internet address");
  SocketAddress dialled;
  const bool v4 = mine->address.is_v4();  // a mapped address counts as IPv4
  if (::getsockopt(socket, v4 ? SOL_IP : SOL_IPV6, v4 ? SO_ORIGINAL_DST : IP6T_SO_ORIGINAL_DST, dialled.get(), &dialled.length) != 0)
    return fail_errno(errno, "ask what the guest dialled");
  const auto found = from_socket_address(dialled);
  if (!found) return fail(ErrorKind::internal, "not_a_tcp_socket", "the kernel gave no Internet address");
  return *found;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto colon = text.rfind(':');
  Endpoint out;
  auto bad = [&] {
    return fail(ErrorKind::invalid_argument, "bad_endpoint", fmt::format("'{}' is not an address and a port", text.substr(0, 64)),
                "write 10.0.0.1:53 or [fd00::1]:53");
  };
  if (colon == std::string_view::npos) return bad();
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size() || out.port == 0) return bad();
  std::string_view host = text.substr(0, colon);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  auto address = Address::parse(host);
  if (!address || brackets == (host.find(':') == std::string_view::npos)) return bad();
  out.address = *address;
  return out;
}

}  // namespace space::egress
