// A guest without a VM: a second namespace with the guest's addresses, and a thread that carries frames between its TAP and the
// sandbox's, as a VMM would. So the rules meet a real network stack on both sides.
#include <arpa/inet.h>
#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_tun.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "net/namespace.h"
#include "net/refusals.h"
#include "net/route_batch.h"
#include "net/ruleset.h"
#include "net/sandbox_net.h"
#include "net/stock.h"
#include "wire/agent_protocol.h"

namespace space::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// An address of either family for connect, bind and printing.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  Address() = default;
  Address(const std::string& ip, std::uint16_t port) {
    if (ip.find(':') == std::string::npos) {
      auto& a = reinterpret_cast<sockaddr_in&>(storage);
      a.sin_family = AF_INET;
      a.sin_port = htons(port);
      length = sizeof a;
      EXPECT_EQ(::inet_pton(AF_INET, ip.c_str(), &a.sin_addr), 1);
    } else {
      auto& a = reinterpret_cast<sockaddr_in6&>(storage);
      a.sin6_family = AF_INET6;
      a.sin6_port = htons(port);
      length = sizeof a;
      EXPECT_EQ(::inet_pton(AF_INET6, ip.c_str(), &a.sin6_addr), 1);
    }
  }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  std::string text() const {
    char out[INET6_ADDRSTRLEN] = {};
    if (storage.ss_family == AF_INET) {
      const auto& a = reinterpret_cast<const sockaddr_in&>(storage);
      ::inet_ntop(AF_INET, &a.sin_addr, out, sizeof out);
      return fmt::format("{}:{}", out, ntohs(a.sin_port));
    }
    const auto& a = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &a.sin6_addr, out, sizeof out);
    return fmt::format("[{}]:{}", out, ntohs(a.sin6_port));
  }
};

constexpr milliseconds kNothing{400};  // how long nothing must come where nothing may

bool ready(const Fd& fd, short events, milliseconds limit = milliseconds(2000)) {
  pollfd p{fd.get(), events, 0};
  return ::poll(&p, 1, static_cast<int>(limit.count())) == 1;
}

// What a connect ended with: 0, an errno, or ETIMEDOUT after two seconds; and how long that took.
struct Outcome {
  int error = 0;
  milliseconds time{};
  Fd fd;
};

Outcome connect_with(Fd fd, Address to, milliseconds limit = milliseconds(2000)) {
  const auto start = Clock::now();
  Outcome outcome;
  if (::connect(fd.get(), to.raw(), to.length) != 0) {
    outcome.error = errno;
    if (errno == EINPROGRESS) {
      socklen_t size = sizeof outcome.error;
      if (!ready(fd, POLLOUT, limit))
        outcome.error = ETIMEDOUT;
      else
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &outcome.error, &size);
    }
  }
  outcome.time = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  outcome.fd = std::move(fd);
  return outcome;
}

class Guest {
 public:
  explicit Guest(const Fd& sandbox_tap) : sandbox_tap_(sandbox_tap), stop_(::eventfd(0, EFD_CLOEXEC)) {
    auto made = on_own_thread([this]() -> Result<> {
      TRY(ns_, enter_new_namespace());
      TRY(tap_, open_file("/dev/net/tun", O_RDWR | O_NONBLOCK));
      ifreq request{};
      std::strcpy(request.ifr_name, "eth0");
      request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
      if (::ioctl(tap_.get(), TUNSETIFF, &request) != 0) return fail_errno(errno, "guest's TAP");
      const unsigned eth0 = ::if_nametoindex("eth0");
      const Mac mac{0x02, 0x5a, 0xce, 0, 0, 2};
      RouteBatch batch;
      batch.up(::if_nametoindex("lo"));
      batch.mac(eth0, mac);
      batch.no_automatic_address(eth0);
      batch.up(eth0);
      batch.address(eth0, wire::kGuestAddress, 30);
      batch.address(eth0, wire::kGuestAddress6, 64);
      TRY_VOID(batch.send());
      TRY_VOID(wait_for_inet6(wire::kGuestAddress6));
      return default_routes();
    });
    EXPECT_TRUE(made) << (made ? "" : describe(made.error()));
    relay_ = std::thread([this] { carry(); });
  }
  ~Guest() {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    relay_.join();
  }

  Fd socket(int family, int type, int protocol = 0) const {
    auto made = in_namespace(ns_, [&]() -> Result<Fd> { return Fd(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol)); });
    return made ? std::move(*made) : Fd();
  }
  Outcome connect(const std::string& ip, std::uint16_t port, milliseconds limit = milliseconds(2000)) const {
    const Address to(ip, port);
    return connect_with(socket(to.storage.ss_family, SOCK_STREAM), to, limit);
  }
  // The errno with which a datagram comes back, 0 when an answer came, ETIMEDOUT after two seconds of nothing.
  Outcome ask(const std::string& ip, std::uint16_t port, const std::string& text = "?") const {
    Address to(ip, port);
    Outcome outcome{0, {}, socket(to.storage.ss_family, SOCK_DGRAM)};
    const auto start = Clock::now();
    EXPECT_EQ(::connect(outcome.fd.get(), to.raw(), to.length), 0);
    EXPECT_EQ(::send(outcome.fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    char buffer[64];
    if (!ready(outcome.fd, POLLIN))
      outcome.error = ETIMEDOUT;
    else if (::recv(outcome.fd.get(), buffer, sizeof buffer, 0) < 0)
      outcome.error = errno;
    outcome.time = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    return outcome;
  }
  const Fd& ns() const { return ns_; }
  void change_mac(const Mac& mac) const {
    auto changed = in_namespace(ns_, [&]() -> Result<> {
      RouteBatch batch;
      batch.mac(::if_nametoindex("eth0"), mac);
      return batch.send();
    });
    EXPECT_TRUE(changed) << describe(changed.error());
  }
  void add_address(const std::string& ip, std::uint8_t prefix) const {
    auto added = in_namespace(ns_, [&]() -> Result<> {
      RouteBatch batch;
      batch.address(::if_nametoindex("eth0"), ip, prefix);
      return batch.send();
    });
    EXPECT_TRUE(added) << describe(added.error());
  }

 private:
  // As the agent sets them; SIOCADDRT (netdevice(7)) is enough here.
  static Result<> default_routes() {
    Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    rtentry route{};
    route.rt_dst.sa_family = AF_INET;
    route.rt_genmask.sa_family = AF_INET;
    auto& gateway = reinterpret_cast<sockaddr_in&>(route.rt_gateway);
    gateway.sin_family = AF_INET;
    ::inet_pton(AF_INET, wire::kHostAddress, &gateway.sin_addr);
    route.rt_flags = RTF_UP | RTF_GATEWAY;
    if (::ioctl(fd.get(), SIOCADDRT, &route) != 0) return fail_errno(errno, "guest's route");
    struct {
      in6_addr dst, src, gateway;
      std::uint32_t type;
      std::uint16_t dst_len, src_len;
      std::uint32_t metric;
      unsigned long info;
      std::uint32_t flags;
      int ifindex;
    } route6{};  // in6_rtmsg of linux/ipv6_route.h, which cannot stand beside netinet/in.h
    ::inet_pton(AF_INET6, wire::kHostAddress6, &route6.gateway);
    route6.metric = 1;
    route6.flags = RTF_UP | RTF_GATEWAY;
    route6.ifindex = static_cast<int>(::if_nametoindex("eth0"));
    Fd fd6(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (::ioctl(fd6.get(), SIOCADDRT, &route6) != 0) return fail_errno(errno, "guest's IPv6 route");
    return {};
  }

  void carry() {
    char frame[70000];
    for (;;) {
      pollfd fds[] = {{sandbox_tap_.get(), POLLIN, 0}, {tap_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      ::poll(fds, 3, -1);
      if (fds[2].revents) return;
      for (int from = 0; from < 2; ++from)
        for (ssize_t n; (n = ::read(fds[from].fd, frame, sizeof frame)) > 0;)
          if (::write(fds[1 - from].fd, frame, static_cast<std::size_t>(n)) < 0) continue;  // a full queue loses frames, as wires do
    }
  }

  const Fd& sandbox_tap_;
  Fd ns_, tap_, stop_;
  std::thread relay_;
};

class SandboxNetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: makes network namespaces";
    auto net = make_sandbox_net();
    ASSERT_TRUE(net) << describe(net.error());
    net_ = std::move(*net);
    guest_.emplace(net_.tap);
  }
  std::vector<Fd> open_gateway(bool listening = true) {
    auto sockets = egress_sockets(net_.net_namespace);
    EXPECT_TRUE(sockets) << (sockets ? "" : describe(sockets.error()));
    if (!sockets) return std::vector<Fd>(3);
    for (int i : {0, 2})
      if (listening && ::listen((*sockets)[i].get(), kEgressBacklog) != 0) ADD_FAILURE() << std::strerror(errno);
    return std::move(*sockets);
  }
  static std::string original_destination(const Fd& fd, int family) {
    Address address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    EXPECT_EQ(::getsockopt(fd.get(), family == AF_INET ? SOL_IP : SOL_IPV6, family == AF_INET ? SO_ORIGINAL_DST : IP6T_SO_ORIGINAL_DST,
                           &address.storage, &address.length),
              0)
        << std::strerror(errno);
    return address.text();
  }

  std::uint64_t refused(wire::Refusal reason) const {
    const auto counts = read_refusals(net_.net_namespace);
    EXPECT_TRUE(counts) << describe(counts.error());
    return counts ? (*counts)[static_cast<std::size_t>(reason)] : 0;
  }

  SandboxNet net_;
  std::optional<Guest> guest_;
};

TEST(Ruleset, SaysWhatTheDesignSays) {
  const std::string text = ruleset();
  using ::testing::HasSubstr;
  EXPECT_THAT(text, HasSubstr("ether saddr != 02:5a:ce:00:00:02 counter name \"frames\" drop"));
  EXPECT_THAT(text, HasSubstr("ip saddr 10.0.0.2 accept"));
  EXPECT_THAT(text, HasSubstr("th dport 53 redirect to :15053"));
  EXPECT_THAT(text, HasSubstr("meta l4proto tcp redirect to :15001"));
  EXPECT_THAT(text, HasSubstr("ct count over 1024 counter name \"connections\" reject with tcp reset"));
  EXPECT_THAT(text, HasSubstr("hook forward priority 0; policy drop;"));
  EXPECT_LT(kMaxConnections, static_cast<unsigned>(kEgressBacklog));
}

TEST_F(SandboxNetTest, TcpIsResetAtOnceWhileNoGatewayListens) {
  for (const char* ip : {"93.184.216.34", "10.0.0.1", "198.18.0.7", "fd00:5ace::1", "2606:2800:220:1::1"})
    for (const std::uint16_t port : std::initializer_list<std::uint16_t>{22, 53, 443, 15001}) {
      const Outcome outcome = guest_->connect(ip, port);
      EXPECT_EQ(outcome.error, ECONNREFUSED) << ip << " " << port;
      EXPECT_LT(outcome.time, milliseconds(500)) << ip << " " << port;
    }
  const auto held = open_gateway(false);  // handed over, and the gateway has not taken them up
  EXPECT_EQ(guest_->connect("93.184.216.34", 443).error, ECONNREFUSED);
  EXPECT_EQ(guest_->connect("93.184.216.34", 53).error, ECONNREFUSED);
}

TEST_F(SandboxNetTest, EveryTcpConnectionReachesTheGatewayWithItsDestination) {
  for (int round = 0; round < 2; ++round) {  // the second gateway takes over from one that died
    const auto gateway = open_gateway();
    const struct {
      const char* ip;
      std::uint16_t port;
      int socket;
      int family;
      const char* text;
    } cases[] = {
        {"93.184.216.34", 443, 0, AF_INET, "93.184.216.34:443"},
        {"198.18.0.7", 15001, 0, AF_INET, "198.18.0.7:15001"},
        {"10.0.0.1", 22, 0, AF_INET, "10.0.0.1:22"},
        {"127.0.0.53", 80, -1, AF_INET, ""},  // stays in the guest
        {"9.9.9.9", 53, 2, AF_INET, "9.9.9.9:53"},
        {"2606:2800:220:1::1", 443, 0, AF_INET6, "[2606:2800:220:1::1]:443"},
        {"fd00:5ace::1", 53, 2, AF_INET6, "[fd00:5ace::1]:53"},
    };
    for (const auto& c : cases) {
      const Outcome outcome = guest_->connect(c.ip, c.port);
      if (c.socket < 0) {
        EXPECT_EQ(outcome.error, ECONNREFUSED) << c.ip;
        continue;
      }
      ASSERT_EQ(outcome.error, 0) << c.ip << " " << std::strerror(outcome.error);
      ASSERT_TRUE(ready(gateway[c.socket], POLLIN)) << c.ip;
      Fd accepted(::accept4(gateway[c.socket].get(), nullptr, nullptr, SOCK_CLOEXEC));
      EXPECT_EQ(original_destination(accepted, c.family), c.text);
      EXPECT_EQ(::send(accepted.get(), "hello", 5, 0), 5);
      char buffer[8];
      ASSERT_TRUE(ready(outcome.fd, POLLIN));
      EXPECT_EQ(::recv(outcome.fd.get(), buffer, sizeof buffer, 0), 5);
    }
    EXPECT_EQ(egress_sockets(net_.net_namespace).error().code, "address_in_use");
  }
  EXPECT_EQ(guest_->connect("93.184.216.34", 443).error, ECONNREFUSED) << "the gateway is gone";
}

TEST_F(SandboxNetTest, DnsReachesTheGatewayAndTheAnswerComesFromTheServerThatWasAsked) {
  for (const char* ip : {"9.9.9.9", "10.0.0.1", "2620:fe::fe"}) {
    EXPECT_EQ(guest_->ask(ip, 53).error, ECONNREFUSED) << ip << ": no gateway";
    const auto gateway = open_gateway();
    std::thread answering([&] {
      char buffer[64];
      sockaddr_storage from{};
      socklen_t length = sizeof from;
      if (!ready(gateway[1], POLLIN)) return;
      const ssize_t n = ::recvfrom(gateway[1].get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &length);
      ::sendto(gateway[1].get(), buffer, static_cast<std::size_t>(n), 0, reinterpret_cast<sockaddr*>(&from), length);
    });
    EXPECT_EQ(guest_->ask(ip, 53).error, 0) << ip;  // a connected socket takes answers from the asked address alone
    answering.join();
  }
}

TEST_F(SandboxNetTest, EverythingElseIsRefusedAtOnceEveryTime) {
  const auto gateway = open_gateway();
  for (int i = 0; i < 20; ++i)
    for (const char* ip : {"93.184.216.34", "2606:2800:220:1::1", "10.0.0.1"}) {
      const Outcome outcome = guest_->ask(ip, 443);  // QUIC
      EXPECT_TRUE(outcome.error == EHOSTUNREACH || outcome.error == EACCES) << ip << " " << std::strerror(outcome.error);
      EXPECT_LT(outcome.time, milliseconds(500));
    }
  auto ping = [&](const char* ip) {
    Outcome outcome{0, {}, guest_->socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)};
    Address to(ip, 0);
    icmphdr echo{};
    echo.type = ICMP_ECHO;
    echo.checksum = htons(0xf7ff);
    const int on = 1;
    ::setsockopt(outcome.fd.get(), SOL_IP, IP_RECVERR, &on, sizeof on);
    EXPECT_EQ(::connect(outcome.fd.get(), to.raw(), to.length), 0);
    EXPECT_EQ(::send(outcome.fd.get(), &echo, sizeof echo, 0), static_cast<ssize_t>(sizeof echo));
    char buffer[256];
    if (!ready(outcome.fd, POLLIN))
      outcome.error = ETIMEDOUT;
    else if (::recv(outcome.fd.get(), buffer, sizeof buffer, 0) < 0)
      outcome.error = errno;
    return outcome.error;
  };
  EXPECT_EQ(refused(wire::Refusal::protocols), 60U);
  EXPECT_EQ(ping("10.0.0.1"), 0);
  EXPECT_EQ(refused(wire::Refusal::protocols), 60U);
  EXPECT_EQ(ping("1.1.1.1"), EHOSTUNREACH);
  EXPECT_EQ(refused(wire::Refusal::protocols), 61U);
  for (const auto other : {wire::Refusal::frames, wire::Refusal::syn_rate, wire::Refusal::connections, wire::Refusal::dns_flows})
    EXPECT_EQ(refused(other), 0U) << wire::kRefusals[static_cast<std::size_t>(other)];
}

TEST_F(SandboxNetTest, TheHostReachesTheAgentAndNothingElseIsOpenOnItsOwnSide) {
  const Fd agent = guest_->socket(AF_INET, SOCK_STREAM);
  Address at("0.0.0.0", wire::kAgentPort);
  ASSERT_EQ(::bind(agent.get(), at.raw(), at.length), 0);
  ASSERT_EQ(::listen(agent.get(), 8), 0);
  auto sockets = guest_sockets(net_.net_namespace, 8);
  ASSERT_TRUE(sockets) << describe(sockets.error());
  ASSERT_EQ(sockets->size(), 8U);
  for (Fd& fd : *sockets) {
    const Outcome outcome = connect_with(std::move(fd), {wire::kGuestAddress, wire::kAgentPort});
    ASSERT_EQ(outcome.error, 0) << std::strerror(outcome.error);
    Address peer;
    peer.length = sizeof peer.storage;
    ASSERT_TRUE(ready(agent, POLLIN));
    Fd accepted(::accept4(agent.get(), peer.raw(), &peer.length, SOCK_CLOEXEC));
    EXPECT_THAT(peer.text(), ::testing::StartsWith("10.0.0.1:"));
    EXPECT_EQ(::send(accepted.get(), "x", 1, 0), 1);
    EXPECT_TRUE(ready(outcome.fd, POLLIN));
  }
}

TEST_F(SandboxNetTest, OtherSourcesGetNothing) {
  const auto gateway = open_gateway();
  EXPECT_EQ(guest_->connect("93.184.216.34", 443).error, 0);
  EXPECT_EQ(guest_->connect("2606:2800:220:1::1", 443).error, 0);
  EXPECT_EQ(refused(wire::Refusal::frames), 0U);
  guest_->add_address("10.9.9.9", 32);
  guest_->add_address("fd00:5ace::3", 128);
  for (const char* source : {"10.9.9.9", "fd00:5ace::3"}) {
    Address from(source, 0), to(source[0] == '1' ? "93.184.216.34" : "2606:2800:220:1::1", 443);
    Fd fd = guest_->socket(from.storage.ss_family, SOCK_STREAM);
    ASSERT_EQ(::bind(fd.get(), from.raw(), from.length), 0);
    const std::uint64_t before = refused(wire::Refusal::frames);
    EXPECT_EQ(connect_with(std::move(fd), to, kNothing).error, ETIMEDOUT) << source;
    EXPECT_GT(refused(wire::Refusal::frames), before) << source;
  }
  const std::uint64_t before = refused(wire::Refusal::frames);
  guest_->change_mac({0x02, 0x5a, 0xce, 0, 0, 9});
  EXPECT_EQ(guest_->connect("93.184.216.34", 443, kNothing).error, ETIMEDOUT);
  EXPECT_GT(refused(wire::Refusal::frames), before);
}

TEST_F(SandboxNetTest, ConnectionsAndTheirRateAreLimitedByResets) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < kMaxConnections + 100) GTEST_SKIP() << "may open too few descriptors";
  auto gateway = open_gateway();
  std::vector<Fd> kept;
  unsigned refused = 0;
  for (unsigned i = 0; i < kMaxConnections + 400; ++i) {
    Outcome outcome = guest_->connect("93.184.216.34", 443);
    ASSERT_TRUE(outcome.error == 0 || outcome.error == ECONNREFUSED) << i << " " << std::strerror(outcome.error);
    if (outcome.error == 0)
      kept.push_back(std::move(outcome.fd));
    else if (++refused > 50 && kept.size() < kMaxConnections)
      std::this_thread::sleep_for(milliseconds(50));  // the rate, not the number
    if (kept.size() == kMaxConnections && refused > 300) break;
  }
  EXPECT_GT(refused, 0U);
  EXPECT_LE(kept.size(), kMaxConnections);
  EXPECT_EQ(SandboxNetTest::refused(wire::Refusal::syn_rate) + SandboxNetTest::refused(wire::Refusal::connections), refused);
  // The way in does not count with the guest's own connections.
  const Fd agent = guest_->socket(AF_INET, SOCK_STREAM);
  Address at("0.0.0.0", wire::kAgentPort);
  ASSERT_EQ(::bind(agent.get(), at.raw(), at.length), 0);
  ASSERT_EQ(::listen(agent.get(), 8), 0);
  auto sockets = guest_sockets(net_.net_namespace, 1);
  ASSERT_TRUE(sockets);
  EXPECT_EQ(connect_with(std::move(sockets->front()), {wire::kGuestAddress, wire::kAgentPort}).error, 0);
  // And what is over is free again.
  kept.clear();
  gateway.clear();
  gateway = open_gateway();
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_EQ(guest_->connect("93.184.216.34", 443).error, 0);
}

TEST_F(SandboxNetTest, HoldsATapAndLoAndNoRouteOut) {
  auto checked = in_namespace(net_.net_namespace, []() -> Result<> {
    std::set<std::string> names;
    auto* interfaces = ::if_nameindex();
    for (auto* i = interfaces; i && i->if_index != 0; ++i) names.insert(i->if_name);
    ::if_freenameindex(interfaces);
    EXPECT_EQ(names, (std::set<std::string>{"lo", "tap0"}));
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    Address out("93.184.216.34", 443);
    EXPECT_EQ(::connect(fd.get(), out.raw(), out.length), -1);
    EXPECT_EQ(errno, ENETUNREACH);
    return {};
  });
  ASSERT_TRUE(checked);
}

TEST_F(SandboxNetTest, APinOutlivesDescriptorsAndEndsOnce) {
  auto folder = TempDir::make("/tmp", "space-net-test-");
  ASSERT_TRUE(folder);
  const auto path = folder->path() / "net";
  ASSERT_TRUE(pin_namespace(net_.net_namespace, path));
  EXPECT_FALSE(pin_namespace(net_.net_namespace, path)) << "a pin is never put over another";
  auto opened = open_pinned(path);
  ASSERT_TRUE(opened) << describe(opened.error());
  EXPECT_TRUE(guest_sockets(*opened, 1));
  EXPECT_TRUE(unpin_namespace(path));
  EXPECT_TRUE(unpin_namespace(path));
  EXPECT_EQ(open_pinned(path).error().kind, ErrorKind::not_found);
  ASSERT_TRUE(write_file_durable(path, ""));  // as after a reboot: the file without the mount
  EXPECT_EQ(open_pinned(path).error().code, "no_namespace");
  EXPECT_TRUE(unpin_namespace(path));
}

TEST(NetStock, FillsItselfUpAndMakesMoreWhenEmpty) {
  std::atomic<int> made = 0;
  NetStock stock(2, [&]() -> Result<SandboxNet> {
    ++made;
    return SandboxNet{};
  });
  auto wait_ready = [&] {
    for (int i = 0; i < 2000 && stock.ready() < 2; ++i) std::this_thread::sleep_for(milliseconds(1));
    return stock.ready();
  };
  EXPECT_EQ(wait_ready(), 2U);
  EXPECT_EQ(made, 2);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(stock.take());
  EXPECT_EQ(wait_ready(), 2U);
  EXPECT_GE(made, 7);
}

TEST(NetStock, AFailureReachesTheOneWhoTakes) {
  NetStock stock(1, []() -> Result<SandboxNet> { return fail(ErrorKind::unsupported, "nft_failed", "no"); });
  EXPECT_EQ(stock.take().error().code, "nft_failed");
}

}  // namespace
}  // namespace space::net
