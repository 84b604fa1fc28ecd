// Names with addresses of both kinds, over real sockets: what is tried, in which order, and what is not.
#include "egress/dialer.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include "egress/testing.h"

namespace space::egress {
namespace {

using namespace std::chrono_literals;
using Answer = std::function<std::optional<std::vector<std::string>>(DnsType)>;  // nullopt: silence

// One name, resolved as the test says. Where it is served, it is served by IPv6 alone: the same port of IPv4 refuses.
struct Host {
  Host(asio::any_io_executor executor_, Answer answer_)
      : executor(executor_),
        answer(std::move(answer_)),
        dns(executor, {asio::ip::make_address("127.0.0.1"), 0}),
        v6(executor),
        v4(executor) {
    spawn(executor, answer_names());
  }
  ~Host() {
    boost::system::error_code ignored;
    dns.close(ignored);
  }
  bool serve_v6() {
    boost::system::error_code error;
    v6.open(asio::ip::tcp::v6(), error);
    if (!error) v6.set_option(asio::ip::v6_only(true), error);
    if (!error) v6.bind({asio::ip::make_address("::1"), 0}, error);
    if (!error) v6.listen(8, error);
    if (error) return false;
    port = v6.local_endpoint().port();
    v4.open(asio::ip::tcp::v4());
    v4.bind({asio::ip::make_address("127.0.0.1"), port}, error);  // and does not listen
    return !error;
  }
  // By this address of IPv4 alone.
  bool serve_v4(const char* address) {
    boost::system::error_code error;
    v4.open(asio::ip::tcp::v4(), error);
    if (!error) v4.bind({asio::ip::make_address(address), 0}, error);
    if (!error) v4.listen(8, error);
    if (!error) port = v4.local_endpoint().port();
    return !error;
  }
  Dialer dialer(std::vector<std::string> ranges) {
    Dialer::Options options;
    options.resolver.servers = {{Address::v4({127, 0, 0, 1}), dns.local_endpoint().port()}};
    for (const std::string& range : ranges) options.allowed_ranges.push_back(Cidr::parse(range).value());
    return {executor, std::move(options)};
  }
  asio::awaitable<void> answer_names() {
    for (;;) {
      std::array<char, 2048> buffer;
      asio::ip::udp::endpoint from;
      const auto [error, n] = co_await dns.async_receive_from(asio::buffer(buffer), from, kAsTuple);
      if (error) co_return;
      const auto question = parse_dns_question({buffer.data(), n});
      if (!question) continue;
      const auto texts = answer(static_cast<DnsType>(question->type));
      if (!texts) continue;
      std::vector<Address> addresses;
      for (const std::string& text : *texts) addresses.push_back(Address::parse(text).value());
      dns.send_to(asio::buffer(dns_answer(*question, DnsCode::no_error, addresses, 60, true)), from);
    }
  }

  asio::any_io_executor executor;
  Answer answer;
  asio::ip::udp::socket dns;
  asio::ip::tcp::acceptor v6, v4;
  std::uint16_t port = 0;
};

std::shared_ptr<const Policy> policy_of(std::string_view text) { return Policy::parse(parse_json_object(text).value()).value(); }

asio::awaitable<std::string> dialled(Dialer& dialer, std::uint16_t port, std::string_view policy) {
  ResolverCache cache;
  Destination to;
  to.name = "both.example.com";
  to.port = port;
  const auto made = co_await dialer.dial(std::move(to), policy_of(policy), cache);
  co_return made ? made->to.address.text() : made.error().code;
}

bool has_v6() {
  const Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<std::uint8_t, 16> loopback{};
  loopback.back() = 1;
  SocketAddress address = to_socket_address({Address::v6(loopback), 0});
  return fd && ::bind(fd.get(), address.get(), address.length) == 0;
}

TEST(Dialer, ReachesByIpv6AHostWhoseIpv4IsNotReached) {
  if (!has_v6()) GTEST_SKIP() << "this machine has no IPv6 on its loopback";
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    // More of IPv4 than there are tries: one is kept for the other kind.
    const std::vector<std::string> four{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"}, six{"::1"};
    Host host(executor, [&](DnsType type) { return type == DnsType::a ? four : six; });
    EXPECT_TRUE(host.serve_v6());
    Dialer both = host.dialer({"127.0.0.1", "::1"});
    EXPECT_EQ(co_await dialled(both, host.port, R"({"mode":"open"})"), "::1");
    // Every address is judged for itself, and what was tried is what is told.
    Dialer four_alone = host.dialer({"127.0.0.1"}), six_alone = host.dialer({"::1"}), neither = host.dialer({});
    EXPECT_EQ(co_await dialled(four_alone, host.port, R"({"mode":"open"})"), "upstream_refused");
    EXPECT_EQ(co_await dialled(six_alone, host.port, R"({"mode":"open"})"), "::1");
    EXPECT_EQ(co_await dialled(neither, host.port, R"({"mode":"open"})"), "address_refused");
    constexpr std::string_view kDenied = R"({"mode":"open","rules":[{"action":"deny","cidr":"::1/128"}]})";
    EXPECT_EQ(co_await dialled(both, host.port, kDenied), "upstream_refused");
    EXPECT_EQ(co_await dialled(six_alone, host.port, kDenied), "address_refused");
  });
}

TEST(Dialer, TriesAFourthIpv4WhereIpv6MayNotBeDialledOrFails) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const std::vector<std::string> four{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"}, six{"::1"};
    Host host(executor, [&](DnsType type) { return type == DnsType::a ? four : six; });
    EXPECT_TRUE(host.serve_v4("127.0.0.5"));
    Dialer refused = host.dialer({"127.0.0.0/8"}), failing = host.dialer({"127.0.0.0/8", "::1"});
    EXPECT_EQ(co_await dialled(refused, host.port, R"({"mode":"open"})"), "127.0.0.5");
    EXPECT_EQ(co_await dialled(failing, host.port, R"({"mode":"open"})"), "127.0.0.5");
    // And no more than that.
    Host last(executor, [&](DnsType type) { return type == DnsType::a ? four : six; });
    EXPECT_TRUE(last.serve_v4("127.0.0.6"));
    Dialer too_late = last.dialer({"127.0.0.0/8", "::1"});
    EXPECT_EQ(co_await dialled(too_late, last.port, R"({"mode":"open"})"), "upstream_refused");
  });
}

TEST(Resolver, GivesBothKindsIpv4FirstAndWaitsForTheSecondAMoment) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    bool silent = false;
    int asked_v6 = 0;
    const auto answer = [&](DnsType type) -> std::optional<std::vector<std::string>> {
      if (type == DnsType::a) return std::vector<std::string>{"192.0.2.1", "192.0.2.2"};
      ++asked_v6;
      if (silent) return std::nullopt;
      return std::vector<std::string>{"2001:db8::1"};
    };
    Host host(executor, answer);
    Resolver::Options options;
    options.servers = {{Address::v4({127, 0, 0, 1}), host.dns.local_endpoint().port()}};
    Resolver resolver(executor, options);
    const auto texts = [&](ResolverCache& cache) -> asio::awaitable<std::vector<std::string>> {
      const auto found = co_await resolver.resolve("both.example.com", cache);
      std::vector<std::string> out;
      if (found)
        for (const Address& address : *found) out.push_back(address.text());
      co_return out;
    };
    const std::vector<std::string> both{"192.0.2.1", "192.0.2.2", "2001:db8::1"}, four{"192.0.2.1", "192.0.2.2"};
    ResolverCache cache, other;
    EXPECT_EQ(co_await texts(cache), both);
    EXPECT_EQ(co_await texts(cache), both);
    EXPECT_EQ(asked_v6, 1);
    silent = true;
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(co_await texts(other), four);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, options.patience);
    EXPECT_EQ(asked_v6, 2);
    EXPECT_NE(other.find("both.example.com", std::chrono::steady_clock::now() + 45s), nullptr) << "it lives as long as it says";
  });
}

TEST(Resolver, AsksAgainSoonWhereTheFirstKindWasNotAnswered) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Host host(executor, [](DnsType type) -> std::optional<std::vector<std::string>> {
      if (type == DnsType::a) return std::nullopt;
      return std::vector<std::string>{"2001:db8::1"};
    });
    Resolver::Options options;
    options.servers = {{Address::v4({127, 0, 0, 1}), host.dns.local_endpoint().port()}};
    options.patience = 50ms;
    Resolver resolver(executor, options);
    ResolverCache cache;
    const auto found = co_await resolver.resolve("both.example.com", cache);
    EXPECT_TRUE(found);
    const auto now = std::chrono::steady_clock::now();
    EXPECT_NE(cache.find("both.example.com", now + 20s), nullptr);
    EXPECT_EQ(cache.find("both.example.com", now + 31s), nullptr);
  });
}

}  // namespace
}  // namespace space::egress
