#include "net/refusals.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

#include "net/namespace.h"

namespace space::net {
namespace {

constexpr timeval kRefusalPatience{2, 0};  // the kernel answers at once

struct Question {
  nlmsghdr header{};
  nfgenmsg generic{};
  nlattr type_header{};
  std::uint32_t type = 0;
};
static_assert(sizeof(Question) == NLMSG_LENGTH(sizeof(nfgenmsg)) + NLA_HDRLEN + sizeof(std::uint32_t));

// The attribute `type` among those in `bytes`; nothing when it is not there, or the lengths do not fit.
std::optional<std::span<const std::byte>> attribute(std::span<const std::byte> bytes, unsigned type) {
  while (bytes.size() >= NLA_HDRLEN) {
    nlattr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > bytes.size()) break;
    if ((header.nla_type & NLA_TYPE_MASK) == type) return bytes.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN);
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
  return std::nullopt;
}

// One counter of the answer; others than ours are passed over.
void add_counter(std::span<const std::byte> message, wire::Refusals& counts) {
  if (message.size() < NLMSG_ALIGN(sizeof(nfgenmsg))) return;
  message = message.subspan(NLMSG_ALIGN(sizeof(nfgenmsg)));
  const auto name = attribute(message, NFTA_OBJ_NAME), data = attribute(message, NFTA_OBJ_DATA);
  const auto packets = data ? attribute(*data, NFTA_COUNTER_PACKETS) : std::nullopt;
  if (!name || !packets || packets->size() != sizeof(std::uint64_t)) return;
  std::string_view text(reinterpret_cast<const char*>(name->data()), name->size());
  text = text.substr(0, text.find('\0'));
  const auto known = std::find(wire::kRefusals.begin(), wire::kRefusals.end(), text);
  if (known == wire::kRefusals.end()) return;
  std::uint64_t value = 0;
  std::memcpy(&value, packets->data(), sizeof value);
  counts[static_cast<std::size_t>(known - wire::kRefusals.begin())] = be64toh(value);
}

Result<wire::Refusals> read_here() {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket) return fail_errno(errno, "open nfnetlink");
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kRefusalPatience, sizeof kRefusalPatience) != 0)
    return fail_errno(errno, "set up nfnetlink");
  Question question;
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETOBJ;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.generic.nfgen_family = AF_UNSPEC;  // both tables
  question.generic.version = NFNETLINK_V0;
  question.type_header = {NLA_HDRLEN + sizeof question.type, NFTA_OBJ_TYPE};
  question.type = htonl(NFT_OBJECT_COUNTER);
  if (::send(socket.get(), &question, sizeof question, 0) < 0) return fail_errno(errno, "ask nfnetlink");
  wire::Refusals counts{};
  alignas(nlmsghdr) std::array<char, 16384> answer;
  for (;;) {
    const ssize_t n = ::recv(socket.get(), answer.data(), answer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read from nfnetlink");
    auto left = static_cast<std::uint32_t>(n);
    for (auto* m = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type == NLMSG_DONE) return counts;
      if (m->nlmsg_type == NLMSG_ERROR) {
        const int error = m->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr)) ? static_cast<nlmsgerr*>(NLMSG_DATA(m))->error : -EBADMSG;
        return fail_errno(-error, "read the counters of the rules");
      }
      add_counter({static_cast<const std::byte*>(NLMSG_DATA(m)), m->nlmsg_len - NLMSG_HDRLEN}, counts);
    }
  }
}

}  // namespace

Result<wire::Refusals> read_refusals(const Fd& net_namespace) { return in_namespace(net_namespace, read_here); }

}  // namespace space::net
