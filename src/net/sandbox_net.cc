#include "net/sandbox_net.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "net/namespace.h"
#include "net/route_batch.h"
#include "net/ruleset.h"
#include "wire/agent_protocol.h"

namespace space::net {
namespace {

constexpr Mac kHost{0x02, 0x5a, 0xce, 0, 0, 1}, kGuest{0x02, 0x5a, 0xce, 0, 0, 2};

Result<Fd> make_tap() {
  TRY(Fd tap, open_file("/dev/net/tun", O_RDWR | O_NONBLOCK));
  ifreq request{};
  std::strncpy(request.ifr_name, kTapName, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) return fail_errno(errno, "make a TAP");
  return tap;
}

// Refusals are meant for a program that waits for them; by default the kernel tells a peer only once a second, and all peers
// together a thousand times. Where /proc/sys cannot be written everything works as well, only less promptly.
void answer_promptly() {
  constexpr std::pair<const char*, const char*> kSettings[] = {
      {"ipv4/icmp_ratemask", "0"}, {"ipv6/icmp/ratemask", "0"}, {"ipv4/tcp_abort_on_overflow", "1"}};
  for (const auto& [name, value] : kSettings)
    if (auto file = open_file(std::filesystem::path("/proc/sys/net") / name, O_WRONLY)) (void)write_all(*file, value);
}

Result<SandboxNet> make_here() {
  SandboxNet net;
  TRY(net.net_namespace, enter_new_namespace());
  TRY(net.tap, make_tap());
  const unsigned tap = ::if_nametoindex(kTapName), lo = ::if_nametoindex("lo");
  if (tap == 0 || lo == 0) return fail_errno(errno, "find the interfaces of a new namespace");
  // Rules first: nothing is ever up without them.
  TRY_VOID(load_ruleset(ruleset()));
  RouteBatch batch;
  batch.mac(tap, kHost);
  batch.address(tap, wire::kHostAddress, 30);
  const bool inet6 = ::access("/proc/sys/net/ipv6", F_OK) == 0;  // a host may run without
  if (inet6) {
    batch.no_automatic_address(tap);
    batch.address(tap, wire::kHostAddress6, 64);
  }
  batch.up(lo);
  batch.up(tap);
  batch.neighbour(tap, wire::kGuestAddress, kGuest);
  if (inet6) batch.neighbour(tap, wire::kGuestAddress6, kGuest);
  TRY_VOID(batch.send());
  answer_promptly();
  if (inet6) TRY_VOID(wait_for_inet6(wire::kHostAddress6));
  return net;
}

Result<Fd> bound_socket(int type, std::uint16_t port) {
  type |= SOCK_NONBLOCK | SOCK_CLOEXEC;
  Fd fd(::socket(AF_INET6, type, 0));
  const bool inet6 = static_cast<bool>(fd);
  if (!inet6 && errno == EAFNOSUPPORT) fd = Fd(::socket(AF_INET, type, 0));
  if (!fd) return fail_errno(errno, "make a socket");
  const int off = 0, on = 1;
  if (inet6 && ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) return fail_errno(errno, "set up a socket");
  // TCP alone: for UDP it would let two gateways share the port without noticing.
  if ((type & SOCK_STREAM) != 0 && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return fail_errno(errno, "set up a socket");
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  if (inet6) {
    auto& any = reinterpret_cast<sockaddr_in6&>(address);
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    length = sizeof any;
  } else {
    auto& any = reinterpret_cast<sockaddr_in&>(address);
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return fd;
  if (errno == EADDRINUSE)
    return fail(ErrorKind::conflict, "address_in_use", fmt::format("port {} of this sandbox is held by a gateway", port),
                "close the earlier sockets first");
  return fail_errno(errno, fmt::format("bind port {}", port));
}

}  // namespace

Result<SandboxNet> make_sandbox_net() { return on_own_thread(make_here); }

Result<std::vector<Fd>> egress_sockets(const Fd& net_namespace) {
  return in_namespace(net_namespace, []() -> Result<std::vector<Fd>> {
    std::vector<Fd> sockets(3);
    TRY(sockets[0], bound_socket(SOCK_STREAM, kEgressTcpPort));
    TRY(sockets[1], bound_socket(SOCK_DGRAM, kEgressDnsPort));
    TRY(sockets[2], bound_socket(SOCK_STREAM, kEgressDnsPort));
    return sockets;
  });
}

Result<std::vector<Fd>> guest_sockets(const Fd& net_namespace, int count) {
  return in_namespace(net_namespace, [count]() -> Result<std::vector<Fd>> {
    std::vector<Fd> sockets;
    for (int i = 0; i < count; ++i) {
      sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!sockets.back()) return fail_errno(errno, "make a socket");
    }
    return sockets;
  });
}

}  // namespace space::net
