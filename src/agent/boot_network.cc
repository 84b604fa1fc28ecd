// Addresses, routes and the neighbour by rtnetlink(7): the same in every sandbox, so a loaded guest needs nothing new.
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "agent/boot.h"
#include "base/fd.h"
#include "wire/agent_protocol.h"

namespace space::agent {
namespace {

constexpr unsigned char kHostMac[6] = {0x02, 0x5a, 0xce, 0x00, 0x00, 0x01};
constexpr unsigned char kPrefix4 = 30, kPrefix6 = 64;

std::vector<std::byte> address_bytes(int family, const char* text) {
  std::vector<std::byte> bytes(family == AF_INET ? 4 : 16);
  ::inet_pton(family, text, bytes.data());
  return bytes;
}

// One request: a header, the family's own struct, attributes.
class Message {
 public:
  template <class Body>
  Message(std::uint16_t type, std::uint16_t flags, const Body& body) {
    header_.nlmsg_type = type;
    header_.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    append(&body, sizeof body);
  }
  Message& add(std::uint16_t type, std::span<const std::byte> value) {
    const rtattr attribute{static_cast<unsigned short>(sizeof(rtattr) + value.size()), type};
    append(&attribute, sizeof attribute);
    append(value.data(), value.size());
    return *this;
  }
  Message& add(std::uint16_t type, std::uint32_t value) { return add(type, std::as_bytes(std::span(&value, 1))); }
  Result<> send(const Fd& socket, std::string_view doing) {
    header_.nlmsg_len = static_cast<std::uint32_t>(sizeof header_ + body_.size());
    std::vector<std::byte> whole(header_.nlmsg_len);
    std::memcpy(whole.data(), &header_, sizeof header_);
    std::memcpy(whole.data() + sizeof header_, body_.data(), body_.size());
    if (::send(socket.get(), whole.data(), whole.size(), 0) < 0) return fail_errno(errno, doing);
    alignas(nlmsghdr) char answer[4096];
    const ssize_t n = ::recv(socket.get(), answer, sizeof answer, 0);
    if (n < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr))) return fail_errno(n < 0 ? errno : EPROTO, doing);
    nlmsgerr error;
    std::memcpy(&error, answer + sizeof(nlmsghdr), sizeof error);
    if (error.error != 0 && error.error != -EEXIST) return fail_errno(-error.error, doing);
    return {};
  }

 private:
  void append(const void* bytes, std::size_t size) {
    const auto* from = static_cast<const std::byte*>(bytes);
    body_.insert(body_.end(), from, from + size);
    body_.resize(NLMSG_ALIGN(body_.size()));
  }
  nlmsghdr header_{};
  std::vector<std::byte> body_;
};

Result<> link_up(const Fd& socket, unsigned index) {
  ifinfomsg link{};
  link.ifi_family = AF_UNSPEC;
  link.ifi_index = static_cast<int>(index);
  link.ifi_flags = IFF_UP;
  link.ifi_change = IFF_UP;
  return Message(RTM_NEWLINK, 0, link).send(socket, "bring a link up");
}

Result<> add_address(const Fd& socket, unsigned index, int family, const char* text, unsigned char prefix) {
  ifaddrmsg address{};
  address.ifa_family = static_cast<unsigned char>(family);
  address.ifa_prefixlen = prefix;
  // Nobody else is on this wire: without the check for duplicates the address can be used at once.
  address.ifa_flags = IFA_F_PERMANENT | (family == AF_INET6 ? IFA_F_NODAD : 0);
  address.ifa_index = index;
  const auto bytes = address_bytes(family, text);
  return Message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, address)
      .add(IFA_LOCAL, bytes)
      .add(IFA_ADDRESS, bytes)
      .send(socket, fmt::format("add {}", text));
}

Result<> add_default_route(const Fd& socket, unsigned index, int family, const char* gateway) {
  rtmsg route{};
  route.rtm_family = static_cast<unsigned char>(family);
  route.rtm_table = RT_TABLE_MAIN;
  route.rtm_protocol = RTPROT_BOOT;
  route.rtm_scope = RT_SCOPE_UNIVERSE;
  route.rtm_type = RTN_UNICAST;
  return Message(RTM_NEWROUTE, NLM_F_CREATE, route)
      .add(RTA_GATEWAY, address_bytes(family, gateway))
      .add(RTA_OIF, index)
      .send(socket, fmt::format("route over {}", gateway));
}

Result<> add_neighbour(const Fd& socket, unsigned index, int family, const char* text) {
  ndmsg neighbour{};
  neighbour.ndm_family = static_cast<unsigned char>(family);
  neighbour.ndm_ifindex = static_cast<int>(index);
  neighbour.ndm_state = NUD_PERMANENT;
  return Message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, neighbour)
      .add(NDA_DST, address_bytes(family, text))
      .add(NDA_LLADDR, std::as_bytes(std::span(kHostMac)))
      .send(socket, fmt::format("neighbour {}", text));
}

}  // namespace

Result<> bring_network_up() {
  const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return fail_errno(errno, "netlink socket");
  TRY_VOID(link_up(socket, ::if_nametoindex("lo")));
  const unsigned eth0 = ::if_nametoindex("eth0");
  if (eth0 == 0) return fail_errno(ENODEV, "eth0");
  // Nobody advertises routers here, and asking for them would only wake the guest.
  (void)write_setting("/proc/sys/net/ipv6/conf/eth0/accept_ra", "0");
  (void)write_setting("/proc/sys/net/ipv6/conf/eth0/router_solicitations", "0");
  (void)write_setting("/proc/sys/net/ipv6/conf/eth0/accept_dad", "0");
  (void)write_setting("/proc/sys/net/ipv6/conf/eth0/addr_gen_mode", "1");  // no link-local address: the host would drop it
  TRY_VOID(link_up(socket, eth0));
  TRY_VOID(add_address(socket, eth0, AF_INET, wire::kGuestAddress, kPrefix4));
  TRY_VOID(add_neighbour(socket, eth0, AF_INET, wire::kHostAddress));
  TRY_VOID(add_default_route(socket, eth0, AF_INET, wire::kHostAddress));
  TRY_VOID(add_address(socket, eth0, AF_INET6, wire::kGuestAddress6, kPrefix6));
  TRY_VOID(add_neighbour(socket, eth0, AF_INET6, wire::kHostAddress6));
  TRY_VOID(add_default_route(socket, eth0, AF_INET6, wire::kHostAddress6));
  return {};
}

}  // namespace space::agent
