#include "egress/dns_server.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>

#include "egress/dns_message.h"
#include "http/stream.h"

namespace space::egress {
namespace {

constexpr std::uint32_t kTtl = 30;  // the mapping never changes; the policy may
constexpr int kMostDatagrams = 64;
constexpr int kMostOnOneStream = 256;
constexpr std::chrono::seconds kSilence{10};

Event dns_event(const DnsQuestion& question, bool over_udp, std::string verdict, std::string reason) {
  Event event;
  event.kind = "dns";
  event.verdict = std::move(verdict);
  event.name = question.name.empty() ? std::string("(no host name)") : question.name;
  event.protocol = over_udp ? "udp" : "tcp";
  event.port = 53;
  event.reason = std::move(reason);
  return event;
}

// The address that was asked, to answer from: after the redirect it is one of several of the interface.
void ask_for_packet_info(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
}

// Only the source address of what came is kept for the answer.
void keep_source(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      auto* info = reinterpret_cast<in_pktinfo*>(CMSG_DATA(c));
      info->ipi_ifindex = 0;
      info->ipi_spec_dst = info->ipi_addr;
    }
  }
}

}  // namespace

asio::awaitable<std::string> answer_dns(std::shared_ptr<Sandbox> sandbox, std::string message, bool over_udp) {
  const auto question = parse_dns_question(message);
  if (!question) co_return std::string();
  const std::vector<Address> none;
  const auto answer = [&](DnsCode code, const std::vector<Address>& addresses) {
    return dns_answer(*question, code, addresses, kTtl, over_udp);
  };
  if (question->code != DnsCode::no_error) co_return answer(question->code, none);
  if (question->name.empty() || question->type == static_cast<std::uint16_t>(DnsType::any) || question->type >= 249) {
    sandbox->report(dns_event(*question, over_udp, "deny", "only addresses of host names are answered"));
    co_return answer(DnsCode::refused, none);
  }
  const Policy& policy = *sandbox->settings()->policy;
  if (question->name.find('.') == std::string::npos || !policy.resolvable(question->name)) {
    sandbox->report(
        dns_event(*question, over_udp, "deny", policy.mode() == Mode::none ? "the policy is none" : "no rule allows this name"));
    co_return answer(policy.mode() == Mode::none ? DnsCode::refused : DnsCode::no_such_name, none);
  }
  const bool v4 = question->type == static_cast<std::uint16_t>(DnsType::a);
  if (!v4 && question->type != static_cast<std::uint16_t>(DnsType::aaaa)) co_return answer(DnsCode::no_error, none);
  const bool known = sandbox->names().contains(question->name);
  const std::uint32_t number = co_await sandbox->number_of(question->name);
  if (number == 0) {
    sandbox->report(dns_event(*question, over_udp, "deny", "the sandbox has used up its 16384 names"));
    co_return answer(DnsCode::server_failure, none);
  }
  if (!known) sandbox->report(dns_event(*question, over_udp, "allow", ""));
  const std::vector<Address> addresses{v4 ? NameMap::v4(number) : NameMap::v6(number)};
  co_return answer(DnsCode::no_error, addresses);
}

asio::awaitable<void> answer_datagrams(std::shared_ptr<Sandbox> sandbox, int socket, const bool& closed) {
  ask_for_packet_info(socket);
  std::array<char, kLongestDnsQuery + 1> buffer;
  for (int i = 0; i < kMostDatagrams; ++i) {
    sockaddr_storage peer{};
    alignas(cmsghdr) char control[256];
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_name = &peer;
    message.msg_namelen = sizeof peer;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) co_return;
    std::string asked(buffer.data(), static_cast<std::size_t>(n));
    std::string reply = co_await answer_dns(sandbox, std::move(asked), true);
    if (closed) co_return;
    if (reply.empty()) continue;
    keep_source(message);
    iovec out{reply.data(), reply.size()};
    message.msg_iov = &out;
    message.msg_flags = 0;
    if (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINVAL) {
      message.msg_control = nullptr;  // a kernel that does not take the source: it chooses one itself
      message.msg_controllen = 0;
      (void)::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
}

asio::awaitable<void> serve_dns_stream(std::shared_ptr<Sandbox> sandbox, Fd accepted) {
  using namespace asio::experimental::awaitable_operators;
  auto socket = http::adopt_socket(sandbox->services().executor, std::move(accepted));
  if (!socket) co_return;
  const auto stream = http::make_plain_stream(std::move(*socket));
  std::string bytes;
  auto read_more = [&]() -> asio::awaitable<bool> {
    std::array<char, 2048> piece;
    const std::array room{asio::mutable_buffer(piece.data(), piece.size())};
    const http::Transfer got = co_await stream->read_some(room);
    bytes.append(piece.data(), got.bytes);
    co_return !got.error;
  };
  for (int served = 0; served < kMostOnOneStream; ++served) {
    for (;;) {
      const std::size_t wanted =
          bytes.size() < 2
              ? 2
              : 2 + (static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) << 8 | static_cast<unsigned char>(bytes[1]));
      if (wanted > 2 + kLongestDnsQuery) co_return;
      if (bytes.size() >= 2 && bytes.size() >= wanted) break;
      const auto more = co_await (read_more() || sleep_for(kSilence));
      if (more.index() == 1 || !std::get<0>(more)) co_return;
    }
    const std::size_t length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) << 8 | static_cast<unsigned char>(bytes[1]);
    std::string message = bytes.substr(2, length);
    bytes.erase(0, 2 + length);
    const std::string reply = co_await answer_dns(sandbox, std::move(message), false);
    if (reply.empty()) co_return;
    const std::array<char, 2> head{static_cast<char>(reply.size() >> 8), static_cast<char>(reply.size())};
    const std::array parts{asio::const_buffer(head.data(), 2), asio::const_buffer(reply.data(), reply.size())};
    const auto sent = co_await (stream->write_all(parts) || sleep_for(kSilence));
    if (sent.index() == 1 || std::get<0>(sent).error) co_return;
  }
}

}  // namespace space::egress
