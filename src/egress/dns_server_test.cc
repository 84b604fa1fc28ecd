// The names that a guest is told, over real sockets.
#include "egress/dns_server.h"

#include <sys/socket.h>

#include "egress/testing.h"

namespace space::egress {
namespace {

using test::Gateway;
using test::run;

TEST(DnsServer, AnswersServfailWhenASandboxHasUsedUpItsNames) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.set(R"({"mode":"allowlist","rules":[{"name":"*.example.com"}]})");
    for (std::uint32_t i = 0; i < NameMap::kMost; ++i) gateway.sandbox->names().number(fmt::format("n{}.example.com", i));
    const auto code = [&](std::string name) -> asio::awaitable<DnsCode> {
      std::string query = dns_query(7, name, DnsType::a).value();
      const std::string answer = co_await answer_dns(gateway.sandbox, std::move(query), true);
      co_return static_cast<DnsCode>(static_cast<unsigned char>(answer[3]) & 15);
    };
    EXPECT_EQ(co_await code("n5.example.com"), DnsCode::no_error);
    EXPECT_EQ(co_await code("one-more.example.com"), DnsCode::server_failure);
    EXPECT_EQ(co_await code("elsewhere.example.org"), DnsCode::no_such_name);
  });
}

TEST(DnsServer, AnswersNothingOnANumberThatIsAnothersSocketByThen) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.set(R"({"mode":"open"})");
    std::vector<Fd> others;
    gateway.told = [&]() -> asio::awaitable<void> {
      gateway.sandbox->detach();
      for (int i = 0; i < 16; ++i) others.emplace_back(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      co_return;
    };
    asio::ip::udp::socket guest(executor, {asio::ip::make_address("127.0.0.1"), 0});
    const std::string query = dns_query(7, "allowed.example", DnsType::a).value();
    guest.send_to(asio::buffer(query), {asio::ip::make_address("127.0.0.1"), gateway.ports[1]});
    while (others.empty()) co_await sleep_for(std::chrono::milliseconds(2));
    co_await sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(guest.available(), 0u) << "an answer went out on a socket that is not the sandbox's";
  });
}

TEST(DnsServer, AnswersNamesOverUdpWithAddressesThatStay) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.set(R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"http"}]})");
    asio::ip::udp::socket guest(executor, asio::ip::udp::v4());
    guest.connect({asio::ip::make_address("127.0.0.1"), gateway.ports[1]});
    const auto ask = [&](std::string name, DnsType type) -> asio::awaitable<DnsReply> {
      const std::string query = dns_query(7, name, type).value();
      guest.send(asio::buffer(query));
      std::array<char, 2048> buffer;
      const auto [error, n] = co_await guest.async_receive(asio::buffer(buffer), kAsTuple);
      co_return parse_dns_reply({buffer.data(), n}, 7, name, type).value();
    };
    const DnsReply first = co_await ask("a.example.com", DnsType::a);
    EXPECT_EQ(first.addresses, std::vector{NameMap::v4(1)});
    const DnsReply six = co_await ask("a.example.com", DnsType::aaaa);
    EXPECT_EQ(six.addresses, std::vector{NameMap::v6(1)});
    const DnsReply denied = co_await ask("evil.example.com", DnsType::a);
    EXPECT_EQ(denied.code, DnsCode::no_such_name);
    gateway.set(R"({"mode":"none"})");
    const DnsReply refused = co_await ask("a.example.com", DnsType::a);
    EXPECT_EQ(refused.code, DnsCode::refused);
    EXPECT_TRUE(gateway.asked.empty());
  });
}

}  // namespace
}  // namespace space::egress
