// The whole way of a guest's connection through the gateway, over real sockets and real TLS.
#include "egress/testing.h"

namespace space::egress {
namespace {

using test::client_hello;
using test::Gateway;
using test::greets;
using test::receive;
using test::run;
using test::send;
using ::testing::Test;

constexpr const char* kHttp = R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"http","ports":[PORT]}]})";
constexpr const char* kHttps =
    R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"https","ports":[PORT]},{"name":"b.example.com","protocol":"https","ports":[PORT]}]})";
constexpr const char* kTcp = R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"tcp","ports":[PORT]}]})";

std::string host(const Gateway& gateway, std::string name = "a.example.com") { return fmt::format("{}:{}", name, gateway.upstream_port); }

// Answers every request with its own head, so that the test sees what arrived.
Gateway::Serve reflect() {
  return [](http::Stream& stream) -> asio::awaitable<void> {
    for (;;) {
      const std::string head = co_await receive(stream, "\r\n\r\n");
      if (head.ends_with(">")) co_return;
      std::string answer = fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Seen: yes\r\n\r\n{}", head.size(), head);
      co_await send(stream, std::move(answer));
    }
  };
}

// Says back what it hears, line by line.
asio::awaitable<void> echoes(http::Stream& stream) {
  for (;;) {
    std::string line = co_await receive(stream, "\n");
    if (line.ends_with(">")) co_return;
    co_await send(stream, std::move(line));
  }
}

TEST(Gateway, SplicesWhatATcpRuleNamesAndNothingElse) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto greet = [](http::Stream& stream) -> asio::awaitable<void> {
      co_await send(stream, "hello\n");
      const std::string line = co_await receive(stream, "\n");
      co_await send(stream, "you said " + line);
    };
    gateway.upstream(greet);
    gateway.set(kTcp);
    auto guest = co_await gateway.dial("a.example.com");
    EXPECT_EQ(co_await receive(*guest, "\n"), "hello\n");
    co_await send(*guest, "ping\n");
    EXPECT_EQ(co_await receive(*guest, "<"), "you said ping\n<end>");
    auto other = co_await gateway.dial("other.example.com");
    EXPECT_EQ(co_await receive(*other, "\n"), "<cut>");
    auto bare = co_await gateway.dial("93.184.216.34");
    EXPECT_EQ(co_await receive(*bare, "\n"), "<cut>");
    EXPECT_TRUE(gateway.saw("connection", "deny"));
    EXPECT_EQ(gateway.asked, std::vector<std::string>{"a.example.com"});
  });
}

TEST(Gateway, ChecksTheHostOfEveryRequest) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(reflect());
    gateway.set(kHttp);
    auto guest = co_await gateway.dial("a.example.com");
    co_await send(
        *guest,
        fmt::format(
            "GET /one?q=1 HTTP/1.1\r\nHost: A.Example.com.:{}\r\nConnection: X-Drop\r\nX-Drop: 1\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
            gateway.upstream_port));
    const std::string first = co_await receive(*guest, "GET /one?q=1 HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    EXPECT_NE(first.find("200 OK"), std::string::npos) << first;
    EXPECT_EQ(first.find("X-Drop"), std::string::npos) << first;
    EXPECT_EQ(first.find("X-Forwarded-For"), std::string::npos) << first;
    co_await send(*guest, "GET /two HTTP/1.1\r\nHost: evil.example.com\r\n\r\n");
    const std::string second = co_await receive(*guest, "<");
    EXPECT_NE(second.find("HTTP/1.1 421"), std::string::npos) << second;
    EXPECT_TRUE(gateway.saw("security", "deny"));
  });
}

TEST(Gateway, RefusesRequestsWithTwoMeanings) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    int reached = 0;
    auto count = [&reached](http::Stream& stream) -> asio::awaitable<void> {
      ++reached;
      (void)co_await receive(stream, "never");
    };
    gateway.upstream(count);
    gateway.set(kHttp);
    const std::string h = "Host: " + host(gateway) + "\r\n";
    const std::vector<std::string> bad{
        "POST / HTTP/1.1\r\n" + h + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        "POST / HTTP/1.1\r\n" + h + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\n" + h + "Content-Length: +5\r\n\r\n",
        "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: xchunked\r\n\r\n",
        "GET / HTTP/1.1\r\n" + h + h + "\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n" + h + "X: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET http://evil.example.com/ HTTP/1.1\r\n" + h + "\r\n",
        "GET //evil.example.com/ HTTP/1.1\r\n" + h + "\r\n",
        "CONNECT evil.example.com:443 HTTP/1.1\r\n" + h + "\r\n",
        "TRACE / HTTP/1.1\r\n" + h + "\r\n",
        "GET / HTTP/1.1\r\nHost: a.example.com:7777\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x@" + host(gateway) + "\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example.com%2e:" + std::to_string(gateway.upstream_port) + "\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    };
    for (const std::string& text : bad) {
      auto guest = co_await gateway.dial("a.example.com");
      co_await send(*guest, text);
      const std::string answer = co_await receive(*guest, "<");
      EXPECT_TRUE(answer.starts_with("HTTP/1.1 4")) << text << answer;
    }
    EXPECT_EQ(reached, 0);
  });
}

TEST(Gateway, FramesBodiesAnewBothWays) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    std::string seen;
    auto serve = [&seen](http::Stream& stream) -> asio::awaitable<void> {
      seen = co_await receive(stream, "0\r\n\r\n");
      co_await send(stream, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end");
    };
    gateway.upstream(serve);
    gateway.set(kHttp);
    auto guest = co_await gateway.dial("a.example.com");
    co_await send(*guest, "POST / HTTP/1.1\r\nHost: " + host(gateway) + "\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(co_await receive(*guest, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    co_await send(*guest, "5;ext=1\r\nhello\r\n0\r\nHost: evil\r\n\r\n");
    const std::string answer = co_await receive(*guest, "0\r\n\r\n");
    EXPECT_EQ(answer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nuntil the end\r\n0\r\n\r\n");
    EXPECT_TRUE(seen.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n")) << seen;
    EXPECT_EQ(seen.find("Expect"), std::string::npos);
  });
}

// An upstream may do what it was asked and close: only what can be done twice is asked for again.
TEST(Gateway, RepeatsOnAnotherConnectionOnlyWhatMayBeDoneTwice) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    std::vector<std::string> seen;
    auto serve = [&seen](http::Stream& stream) -> asio::awaitable<void> {
      for (int on_this = 0;; ++on_this) {
        const std::string head = co_await receive(stream, "\r\n\r\n");
        if (head.ends_with(">")) co_return;
        seen.push_back(head.substr(0, head.find(" HTTP")));
        if (on_this == 1) co_return;
        co_await send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      }
    };
    gateway.upstream(serve);
    gateway.set(kHttp);
    for (const std::string method : {"GET", "POST"}) {
      auto guest = co_await gateway.dial("a.example.com");
      co_await send(*guest, "GET /first HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
      EXPECT_TRUE((co_await receive(*guest, "\r\n\r\nok")).starts_with("HTTP/1.1 200 "));
      co_await send(*guest, method + " /second HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
      const std::string answer = co_await receive(*guest, "\r\n\r\n");
      EXPECT_TRUE(answer.starts_with(method == "GET" ? "HTTP/1.1 200 " : "HTTP/1.1 502 ")) << method << ": " << answer;
      EXPECT_EQ(std::count(seen.begin(), seen.end(), method + " /second"), method == "GET" ? 2 : 1);
    }
  });
}

TEST(Gateway, EndsTlsAndPutsTheCredentialInWhereItBelongs) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(reflect(), "a.example.com");
    gateway.credentials.set("key", Secret(std::string_view("s3cr3t-value-1234")));
    gateway.set(kHttps, R"([{"credential":"key","name":"a.example.com","port":PORT,"methods":["GET"],"paths":["/v1"],"bearer":true}])");
    auto guest = co_await gateway.dial_tls("a.example.com");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    co_await send(*guest, "GET /v1/x HTTP/1.1\r\nHost: " + host(gateway) + "\r\nAuthorization: Bearer mine\r\nRange: bytes=1-2\r\n\r\n");
    const std::string with = co_await receive(*guest, "identity\r\n\r\n");
    EXPECT_NE(with.find("Authorization: Bearer *****************\r\n"), std::string::npos)
        << with;  // put in, and taken out of the reflection
    EXPECT_EQ(with.find("s3cr3t"), std::string::npos);
    EXPECT_EQ(with.find("mine"), std::string::npos);
    EXPECT_EQ(with.find("Range"), std::string::npos);
    co_await send(*guest, "GET /admin HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    const std::string without = co_await receive(*guest, host(gateway) + "\r\n\r\n");
    EXPECT_EQ(without.find("Authorization"), std::string::npos) << without;
    const auto used =
        std::find_if(gateway.events.begin(), gateway.events.end(), [](const json::object& e) { return e.contains("credential"); });
    EXPECT_TRUE(used != gateway.events.end() && used->at("credential") == "key");
    for (const json::object& event : gateway.events) EXPECT_EQ(json::serialize(event).find("s3cr3t"), std::string::npos);
  });
}

TEST(Gateway, TlsThatNamesAnotherHostNeverGetsThrough) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(reflect(), "a.example.com");
    gateway.set(kHttps);
    EXPECT_FALSE(co_await gateway.dial_tls("a.example.com", "b.example.com"));
    EXPECT_TRUE(gateway.saw("security", "deny"));
    auto guest = co_await gateway.dial_tls("a.example.com");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    co_await send(*guest, "GET / HTTP/1.1\r\nHost: " + host(gateway, "b.example.com") + "\r\n\r\n");
    const std::string answer = co_await receive(*guest, "<");
    EXPECT_NE(answer.find("HTTP/1.1 421"), std::string::npos) << answer;
    auto plain = co_await gateway.dial("a.example.com");
    co_await send(*plain, "GET / HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    EXPECT_EQ(co_await receive(*plain, "<"), "<cut>");
  });
}

TEST(Gateway, NeverTrustsAnUpstreamWithAnotherCertificate) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(reflect(), "other.example.com");
    gateway.set(kHttps);
    auto guest = co_await gateway.dial_tls("a.example.com");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    co_await send(*guest, "GET / HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    const std::string answer = co_await receive(*guest, "}");
    EXPECT_NE(answer.find("HTTP/1.1 502"), std::string::npos) << answer;
    EXPECT_NE(answer.find("hostname mismatch"), std::string::npos) << answer;
  });
}

TEST(Gateway, DialsNoSpecialAddressWhateverTheNameResolvesTo) {
  for (const char* address : {"10.1.2.3", "169.254.169.254", "127.0.0.2", "100.64.0.1", "0.0.0.0", "224.0.0.1", "198.18.0.1", "::1",
                              "fe80::1", "fd00::1", "64:ff9b::7f00:1", "2002:7f00:1::"})
    run([address](asio::any_io_executor executor) -> asio::awaitable<void> {
      Gateway gateway(executor);
      gateway.upstream(reflect());
      gateway.resolves_to = address;
      gateway.set(kHttp);
      auto guest = co_await gateway.dial("a.example.com");
      co_await send(*guest, "GET / HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
      const std::string answer = co_await receive(*guest, "}");
      EXPECT_NE(answer.find("address_refused"), std::string::npos) << address << answer;
    });
}

TEST(Gateway, CountsForTheOutsideOnlyWhatReachesIt) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(reflect());
    gateway.set(kHttp);
    const Counters& counters = gateway.sandbox->counters();
    auto refused = co_await gateway.dial("a.example.com");
    co_await send(*refused, "GET /one HTTP/1.1\r\nHost: evil.example.com\r\n\r\n");
    (void)co_await receive(*refused, "<");
    auto bare = co_await gateway.dial("93.184.216.34");
    (void)co_await receive(*bare, "<");
    auto guest = co_await gateway.dial("a.example.com");
    EXPECT_EQ(counters.connections, 3U);
    EXPECT_EQ(counters.requests, 1U);
    EXPECT_EQ(counters.dialled, 0U);
    EXPECT_EQ(counters.outside, 0U);
    EXPECT_GE(gateway.sandbox->open_connections(), 1U);
    EXPECT_EQ(gateway.sandbox->open_outside(), 0U) << "it has not said what it wants";

    co_await send(*guest, "GET /one HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    (void)co_await receive(*guest, "Host: " + host(gateway) + "\r\n\r\n");
    EXPECT_EQ(counters.dialled, 1U);
    EXPECT_EQ(gateway.sandbox->open_outside(), 1U);
    EXPECT_GT(counters.outside, 0U);
    EXPECT_EQ(counters.outside, counters.bytes_up + counters.bytes_down);
  });
}

TEST(Gateway, CutsWhatANewPolicyForbids) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(greets);
    gateway.set(kTcp);
    auto guest = co_await gateway.dial("a.example.com");
    EXPECT_EQ(co_await receive(*guest, "\n"), "hello\n");
    gateway.set(R"({"mode":"none"})");
    EXPECT_EQ(co_await receive(*guest, "\n"), "<cut>");
    co_await sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(gateway.sandbox->open_connections(), 0U);
  });
}

TEST(Gateway, CutsWhatPassedUnreadWhereTheNewRulesReadIt) {
  constexpr const char *kTunnel = R"({"mode":"allowlist","rules":[{"name":"a.example.com","tunnel":true,"ports":[PORT]}]})",
                       *kOpen = R"({"mode":"open"})",
                       *kNarrow =
                           R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"https","ports":[PORT],"paths":["/v1"]}]})",
                       *kBinding = R"([{"credential":"key","name":"a.example.com","port":PORT,"bearer":true}])";
  struct Change {
    const char *before, *after, *bindings;
    bool cut;
  };
  for (const Change& change :
       {Change{kTcp, kNarrow, "[]", true}, Change{kTunnel, kNarrow, "[]", true}, Change{kOpen, kNarrow, "[]", true},
        Change{kOpen, kOpen, kBinding, true}, Change{kTunnel, kTcp, "[]", false}, Change{kOpen, kTunnel, "[]", false},
        Change{kTcp, kTcp, "[]", false}, Change{kTcp, kOpen, "[]", false}, Change{kTcp, kTunnel, "[]", true}})
    run([&change](asio::any_io_executor executor) -> asio::awaitable<void> {
      Gateway gateway(executor);
      gateway.upstream(echoes);
      gateway.set(change.before);
      auto guest = co_await gateway.dial("a.example.com");
      co_await send(*guest, "one\n");
      EXPECT_EQ(co_await receive(*guest, "\n"), "one\n");
      gateway.set(change.after, change.bindings);
      if (!change.cut) co_await send(*guest, "two\n");
      EXPECT_EQ(co_await receive(*guest, "\n"), change.cut ? "<cut>" : "two\n") << change.before << " then " << change.after;
    });
}

TEST(Gateway, CutsTlsThatAskedForAHostDeniedLater) {
  constexpr const char* kTunnel = R"({"mode":"allowlist","rules":[{"name":"a.example.com","tunnel":true,"ports":[PORT]}]})";
  constexpr const char* kDenied = R"({"mode":"open","rules":[{"action":"deny","name":"b.example.com"}]})";
  struct Change {
    const char *dialled, *asked, *after;
    bool cut;
  };
  // By address, and by another name of the same address: what is asked for inside is what counts.
  for (const Change& change :
       {Change{"127.0.0.1", "b.example.com", kDenied, true}, Change{"a.example.com", "b.example.com", kDenied, true},
        Change{"a.example.com", "b.example.com", kTunnel, true}, Change{"127.0.0.1", "c.example.com", kDenied, false},
        Change{"a.example.com", "a.example.com", kTunnel, false}})
    run([&change](asio::any_io_executor executor) -> asio::awaitable<void> {
      Gateway gateway(executor);
      gateway.upstream(greets);
      gateway.set(R"({"mode":"open"})");
      auto guest = co_await gateway.dial(change.dialled);
      EXPECT_EQ(co_await receive(*guest, "\n"), "hello\n");
      co_await send(*guest, client_hello(change.asked));
      co_await sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(gateway.sandbox->open_connections(), 1U);
      gateway.set(change.after);
      co_await sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(gateway.sandbox->open_connections(), change.cut ? 0U : 1U)
          << change.dialled << " for " << change.asked << ", then " << change.after;
    });
}

TEST(Gateway, CutsARequestByAddressForAHostDeniedLater) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto half = [](http::Stream& stream) -> asio::awaitable<void> {
      (void)co_await receive(stream, "\r\n\r\n");
      co_await send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf\n");
      (void)co_await receive(stream, "never");
    };
    gateway.upstream(half);
    gateway.set(R"({"mode":"allowlist","rules":[{"cidr":"127.0.0.1","protocol":"http","ports":[PORT]}]})");
    auto guest = co_await gateway.dial("127.0.0.1");
    co_await send(*guest, "GET / HTTP/1.1\r\nHost: " + host(gateway, "b.example.com") + "\r\n\r\n");
    EXPECT_TRUE((co_await receive(*guest, "half\n")).starts_with("HTTP/1.1 200"));
    gateway.set(
        R"({"mode":"allowlist","rules":[{"cidr":"127.0.0.1","protocol":"http","ports":[PORT]},{"action":"deny","name":"b.example.com"}]})");
    EXPECT_EQ(co_await receive(*guest, "\n"), "<cut>");
  });
}

TEST(TunnelRefusal, AnEncryptedHelloIsRefusedWhereNamesDecide) {
  const auto refused = [](std::string_view text, const Destination& to, bool encrypted) {
    const auto policy = Policy::parse(parse_json_object(text).value()).value();
    return tunnel_refusal({"a.example.com", {}, encrypted}, to, *policy).has_value();
  };
  constexpr const char *kTunnel = R"({"mode":"allowlist","rules":[{"name":"a.example.com","tunnel":true}]})",
                       *kRange = R"({"mode":"allowlist","rules":[{"cidr":"93.184.216.0/24"}]})";
  constexpr const char *kOpen = R"({"mode":"open"})", *kHole = R"({"mode":"open","rules":[{"action":"deny","name":"b.example.com"}]})";
  const Destination named{"a.example.com", std::nullopt, 443}, bare{"", Address::parse("93.184.216.34").value(), 443};
  EXPECT_FALSE(refused(kTunnel, named, false));
  EXPECT_TRUE(refused(kTunnel, named, true));
  EXPECT_FALSE(refused(kOpen, named, true)) << "a browser's GREASE";
  EXPECT_FALSE(refused(kOpen, bare, true));
  EXPECT_FALSE(refused(kRange, bare, true));
  EXPECT_TRUE(refused(kHole, named, true));
  EXPECT_TRUE(refused(kHole, bare, true));
  EXPECT_FALSE(refused(kHole, named, false));
}

TEST(Gateway, JudgesAnAddressAgainWhenThePolicyChangedWhileItWasDialled) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.names_after = std::chrono::milliseconds(50);
    gateway.upstream(greets);
    gateway.set(kTcp);
    auto guest = co_await gateway.dial("a.example.com");
    gateway.set(
        R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"tcp","ports":[PORT]},{"action":"deny","cidr":"127.0.0.0/8"}]})");
    EXPECT_EQ(co_await receive(*guest, "\n"), "<cut>");
  });
}

TEST(Gateway, HoldsRequestsAndBytesToTheirRates) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto serve = [](http::Stream& stream) -> asio::awaitable<void> {
      for (;;) {
        const std::string head = co_await receive(stream, "\r\n\r\n");
        if (head.ends_with(">")) co_return;
        co_await send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
      }
    };
    gateway.upstream(serve);
    gateway.set(kHttp, "[]", R"({"requests_per_second":2})");
    const std::string request = "GET / HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n";
    auto guest = co_await gateway.dial("a.example.com");
    for (const char* wanted : {"HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 429"}) {
      co_await send(*guest, request);
      const std::string answer = co_await receive(*guest, "}");
      EXPECT_TRUE(answer.starts_with(wanted)) << wanted << answer;
    }
    EXPECT_TRUE(gateway.saw("request", "deny"));
    co_await sleep_for(std::chrono::milliseconds(600));  // one request is filled up again
    auto later = co_await gateway.dial("a.example.com");
    co_await send(*later, request);
    const std::string answer = co_await receive(*later, "}");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  });
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto much = [](http::Stream& stream) -> asio::awaitable<void> { co_await send(stream, std::string(1'500'000, 'x') + "."); };
    gateway.upstream(much);
    gateway.set(kTcp, "[]", R"({"bytes_per_second":1000000})");
    const auto begun = std::chrono::steady_clock::now();
    auto guest = co_await gateway.dial("a.example.com");
    EXPECT_EQ((co_await receive(*guest, ".")).size(), 1'500'001U);
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    EXPECT_GT(seconds, 0.4) << "a second's worth at once, the rest at its rate";
  });
}

TEST(Gateway, TellsThatASecretWasTakenOutOfAHeadAndRefusesCodingsItCannotRead) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto serve = [](http::Stream& stream) -> asio::awaitable<void> {
      const std::string head = co_await receive(stream, "\r\n\r\n");
      co_await send(stream, head.starts_with("GET /head")
                                ? "HTTP/1.1 204 No Content\r\nX-Seen: s3cr3t-value-1234\r\nConnection: close\r\n\r\n"
                                : "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
    };
    gateway.upstream(serve, "a.example.com");
    gateway.credentials.set("key", Secret(std::string_view("s3cr3t-value-1234")));
    gateway.set(kHttps, R"([{"credential":"key","name":"a.example.com","port":PORT,"bearer":true}])");
    auto guest = co_await gateway.dial_tls("a.example.com");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    co_await send(*guest, "GET /head HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    const std::string with = co_await receive(*guest, "\r\n\r\n");
    EXPECT_NE(with.find("X-Seen: *****************\r\n"), std::string::npos) << with;
    co_await send(*guest, "GET /body HTTP/1.1\r\nHost: " + host(gateway) + "\r\n\r\n");
    const std::string refused = co_await receive(*guest, "}");
    EXPECT_NE(refused.find("HTTP/1.1 502"), std::string::npos) << refused;
    EXPECT_NE(refused.find("upstream_encoding"), std::string::npos) << refused;
    EXPECT_EQ(std::count_if(
                  gateway.events.begin(), gateway.events.end(),
                  [](const json::object& e) { return e.contains("reason") && e.at("reason") == "a secret was taken out of the answer"; }),
              1);
  });
}

TEST(Gateway, HoldsABurstToTheLimitOfConnections) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(greets);
    gateway.set(kTcp, "[]", R"({"connections":2})");
    // The first one says what is dialled; the others wait in the queue together, for one round of the loop that accepts them.
    std::vector<std::unique_ptr<http::Stream>> guests;
    guests.push_back(co_await gateway.dial("a.example.com"));
    for (int i = 0; i < 5; ++i) {
      asio::ip::tcp::socket socket(executor);
      socket.connect({asio::ip::make_address("127.0.0.1"), gateway.ports[0]});
      auto adopted = http::adopt_socket(executor, Fd(socket.release()));
      guests.push_back(http::make_plain_stream(std::move(*adopted)));
    }
    int served = 0, cut = 0;
    for (const auto& guest : guests) {
      const std::string got = co_await receive(*guest, "\n");
      served += got == "hello\n" ? 1 : 0;
      cut += got == "<cut>" ? 1 : 0;
    }
    EXPECT_EQ(served, 2);
    EXPECT_EQ(cut, 4);
    EXPECT_TRUE(gateway.saw("limit", "deny"));
    // A place is free again once a connection is over.
    guests.clear();
    co_await sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(gateway.sandbox->admitted, 0U);
    auto again = co_await gateway.dial("a.example.com");
    EXPECT_EQ(co_await receive(*again, "\n"), "hello\n");
  });
}

TEST(Gateway, StopsWhenTheBytesAreUsedUp) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto much = [](http::Stream& stream) -> asio::awaitable<void> {
      for (bool on = true; on;) on = co_await send(stream, std::string(10'000, 'x'));
    };
    gateway.upstream(much);
    gateway.set(kTcp, "[]", R"({"total_bytes":100000})");
    auto guest = co_await gateway.dial("a.example.com");
    const std::string got = co_await receive(*guest, "<");
    EXPECT_TRUE(got.ends_with("<cut>"));
    EXPECT_LE(got.size(), 101'000U);
    auto again = co_await gateway.dial("a.example.com");
    EXPECT_EQ(co_await receive(*again, "\n"), "<cut>");
  });
}

TEST(Gateway, CarriesWebSocketsAndNoOtherUpgrade) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto serve = [](http::Stream& stream) -> asio::awaitable<void> {
      const std::string head = co_await receive(stream, "\r\n\r\n");
      if (head.find("Upgrade: websocket") == std::string::npos) {
        co_await send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain");
        co_return;
      }
      // RFC 6455, section 1.3: the sample key and its answer.
      co_await send(stream,
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                    "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nfirst");
      const std::string frame = co_await receive(stream, "frame");
      co_await send(stream, "echo " + frame);
    };
    gateway.upstream(serve);
    gateway.set(kHttp);
    const std::string upgrade =
        "GET /ws HTTP/1.1\r\nHost: " + host(gateway) +
        "\r\nConnection: Upgrade\r\nUpgrade: {}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    auto guest = co_await gateway.dial("a.example.com");
    co_await send(*guest, fmt::format(fmt::runtime(upgrade), "websocket"));
    const std::string head = co_await receive(*guest, "first");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 101")) << head;
    co_await send(*guest, "frame");
    EXPECT_EQ(co_await receive(*guest, "<"), "echo frame<end>");
    auto other = co_await gateway.dial("a.example.com");
    co_await send(*other, fmt::format(fmt::runtime(upgrade), "h2c"));
    const std::string plain = co_await receive(*other, "plain");
    EXPECT_TRUE(plain.starts_with("HTTP/1.1 200")) << plain;
  });
}

TEST(Gateway, CutsWhatALaterRangeRuleDenies) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(greets);
    gateway.set(kTcp);
    auto guest = co_await gateway.dial("a.example.com");
    EXPECT_EQ(co_await receive(*guest, "\n"), "hello\n");
    // The guest dialled a name; the address behind it is denied now.
    gateway.set(
        R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"tcp","ports":[PORT]},{"action":"deny","cidr":"127.0.0.0/8"}]})");
    EXPECT_EQ(co_await receive(*guest, "\n"), "<cut>");
    auto again = co_await gateway.dial("a.example.com");
    EXPECT_EQ(co_await receive(*again, "\n"), "<cut>");
  });
}

}  // namespace
}  // namespace space::egress
