#include "net/route_batch.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/file.h"

namespace space::net {
namespace {

// The two families differ in length only. An address that is none is our own mistake: all of them are constants.
struct Ip {
  unsigned char family = 0;
  std::array<std::byte, 16> bytes{};
  std::size_t length = 0;

  explicit Ip(const std::string& text) {
    family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
    length = family == AF_INET ? 4 : 16;
    if (::inet_pton(family, text.c_str(), bytes.data()) != 1) std::abort();
  }
  std::span<const std::byte> span() const { return {bytes.data(), length}; }
};

}  // namespace

void RouteBatch::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  buffer_.resize(NLMSG_ALIGN(buffer_.size()));
  if (count_ > 0) at<nlmsghdr>(message_).nlmsg_len = static_cast<std::uint32_t>(buffer_.size() - message_);
}

void RouteBatch::begin(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> header) {
  message_ = buffer_.size();
  ++count_;
  nlmsghdr message{};
  message.nlmsg_type = type;
  message.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
  message.nlmsg_seq = count_;
  buffer_.resize(message_ + sizeof message);
  std::memcpy(buffer_.data() + message_, &message, sizeof message);
  append(header);
}

std::size_t RouteBatch::open(std::uint16_t type) {
  const std::size_t start = buffer_.size();
  attribute(type, {});
  return start;
}

void RouteBatch::close(std::size_t start) { at<rtattr>(start).rta_len = static_cast<std::uint16_t>(buffer_.size() - start); }

void RouteBatch::attribute(std::uint16_t type, std::span<const std::byte> value) {
  const rtattr header{static_cast<std::uint16_t>(sizeof(rtattr) + value.size()), type};
  append(std::as_bytes(std::span(&header, 1)));
  append(value);
}

void RouteBatch::link(unsigned index, unsigned flags) {
  ifinfomsg header{};
  header.ifi_index = static_cast<int>(index);
  header.ifi_flags = flags;
  header.ifi_change = flags;
  begin(RTM_NEWLINK, 0, std::as_bytes(std::span(&header, 1)));
}

void RouteBatch::up(unsigned index) { link(index, IFF_UP); }

void RouteBatch::mac(unsigned index, const Mac& mac) {
  link(index, 0);
  attribute(IFLA_ADDRESS, std::as_bytes(std::span(mac)));
}

void RouteBatch::no_automatic_address(unsigned index) {
  link(index, 0);
  const std::uint8_t mode = IN6_ADDR_GEN_MODE_NONE;
  const std::size_t families = open(IFLA_AF_SPEC), inet6 = open(AF_INET6);
  attribute(IFLA_INET6_ADDR_GEN_MODE, std::as_bytes(std::span(&mode, 1)));
  close(inet6);
  close(families);
}

void RouteBatch::address(unsigned index, const std::string& ip, std::uint8_t prefix) {
  const Ip parsed(ip);
  ifaddrmsg header{};
  header.ifa_family = parsed.family;
  header.ifa_prefixlen = prefix;
  header.ifa_flags = IFA_F_PERMANENT | (parsed.family == AF_INET6 ? IFA_F_NODAD : 0);
  header.ifa_index = index;
  begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, std::as_bytes(std::span(&header, 1)));
  attribute(IFA_LOCAL, parsed.span());
  attribute(IFA_ADDRESS, parsed.span());
}

void RouteBatch::neighbour(unsigned index, const std::string& ip, const Mac& mac) {
  const Ip parsed(ip);
  ndmsg header{};
  header.ndm_family = parsed.family;
  header.ndm_ifindex = static_cast<int>(index);
  header.ndm_state = NUD_PERMANENT;
  begin(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, std::as_bytes(std::span(&header, 1)));
  attribute(NDA_DST, parsed.span());
  attribute(NDA_LLADDR, std::as_bytes(std::span(mac)));
}

Result<> RouteBatch::send() {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return fail_errno(errno, "open rtnetlink");
  if (::send(socket.get(), buffer_.data(), buffer_.size(), 0) < 0) return fail_errno(errno, "send to rtnetlink");
  alignas(nlmsghdr) std::array<char, 8192> answer;
  for (std::uint32_t seen = 0; seen < count_;) {
    const ssize_t n = ::recv(socket.get(), answer.data(), answer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read from rtnetlink");
    auto left = static_cast<std::uint32_t>(n);
    for (auto* m = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type != NLMSG_ERROR) continue;
      ++seen;
      if (const int error = static_cast<nlmsgerr*>(NLMSG_DATA(m))->error; error != 0)
        return fail_errno(-error, fmt::format("rtnetlink request {}", m->nlmsg_seq));
    }
  }
  return {};
}

Result<> wait_for_inet6(const std::string& ip) {
  // Its own route, as the table shows it: 32 hex digits and a prefix length of 128.
  const std::string route = hex_encode(Ip(ip).span()) + " 80 ";
  for (int attempt = 0; attempt < 1000; ++attempt) {
    TRY(const std::string table, read_file("/proc/thread-self/net/ipv6_route", 1 << 20));
    if (table.starts_with(route) || table.find("\n" + route) != std::string::npos) return {};
    ::usleep(1000);
  }
  return fail(ErrorKind::deadline_exceeded, "address_not_ready", fmt::format("the kernel did not put {} to use", ip), "try again");
}

}  // namespace space::net
