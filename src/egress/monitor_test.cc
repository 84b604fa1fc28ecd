// The monitor mode: nothing is refused, and what would have sufficed is said.
#include "egress/testing.h"

namespace space::egress {
namespace {

using test::client_hello;
using test::Gateway;
using test::greets;
using test::receive;
using test::run;
using test::send;

TEST(Monitor, MonitorsWithoutRefusingAndSaysWhatWouldHaveSufficed) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(greets);
    gateway.set(R"({"mode":"allowlist","monitor":true,"rules":[]})");
    for (const char* to : {"a.example.com", "127.0.0.1"}) {
      auto guest = co_await gateway.dial(to);
      EXPECT_EQ(co_await receive(*guest, "\n"), "hello\n") << to;
    }
    EXPECT_TRUE(gateway.saw("connection", "monitor"));
    co_await sleep_for(std::chrono::milliseconds(20));
    const json::object observed = gateway.sandbox->observed().to_json();
    const json::object as_sent = parse_json_object(json::serialize(observed.at("policy"))).value();
    const auto sufficed = Policy::parse(as_sent);
    EXPECT_TRUE(sufficed);
    if (!sufficed) co_return;
    EXPECT_TRUE((*sufficed)->connect({"a.example.com", std::nullopt, gateway.upstream_port}).allowed);
    EXPECT_TRUE((*sufficed)->connect({"", Address::v4({127, 0, 0, 1}), gateway.upstream_port}).allowed);
    EXPECT_FALSE((*sufficed)->connect({"b.example.com", std::nullopt, gateway.upstream_port}).allowed);
  });
}

TEST(Monitor, ObservesByWhatIsSpokenWhichRuleWouldDo) {
  const std::pair<std::string, const char*> kSpoken[] = {
      {client_hello("a.example.com"), "https"}, {client_hello("b.example.com"), "tcp"}, {"SSH-2.0-client\r\n", "tcp"}};
  for (const auto& [first, protocol] : kSpoken)
    run([&first = first, protocol = protocol](asio::any_io_executor executor) -> asio::awaitable<void> {
      Gateway gateway(executor);
      gateway.upstream(greets);
      gateway.set(R"({"mode":"allowlist","monitor":true,"rules":[]})");
      auto guest = co_await gateway.dial("a.example.com");
      co_await send(*guest, first);
      EXPECT_EQ(co_await receive(*guest, "\n"), "hello\n");
      co_await sleep_for(std::chrono::milliseconds(20));
      const json::object observed = gateway.sandbox->observed().to_json();
      EXPECT_EQ(json::serialize(observed.at("policy").at("rules")),
                fmt::format(R"([{{"name":"a.example.com","ports":[{}],"protocol":"{}"}}])", gateway.upstream_port, protocol));
    });
}

}  // namespace
}  // namespace space::egress
