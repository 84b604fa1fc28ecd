#include "egress/policy.h"

#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "egress/name.h"

namespace space::egress {
namespace {

using Handling = Verdict::Handling;

std::shared_ptr<const Policy> policy(std::string_view text) {
  auto parsed = Policy::parse(parse_json_object(text).value());
  EXPECT_TRUE(parsed) << (parsed ? "" : describe(parsed.error()));
  return parsed ? *parsed : Policy::none();
}

Destination to(std::string name, std::uint16_t port = 443) { return {std::move(name), std::nullopt, port}; }

TEST(CanonicalName, FoldsEveryDisguiseIntoOneForm) {
  EXPECT_EQ(canonical_name("API.Example.COM."), "api.example.com");
  EXPECT_EQ(canonical_name("bücher.example"), "xn--bcher-kva.example");
  EXPECT_EQ(canonical_name("XN--BCHER-KVA.example"), "xn--bcher-kva.example");
  EXPECT_EQ(canonical_name("_srv.example.com"), "_srv.example.com");
}

TEST(CanonicalName, RefusesWhatSomeoneElseMightReadDifferently) {
  for (const char* bad : {"",           ".",        "a..b",       ".a",  "a.b..", "-a.com",    "a-.com",  "a b.com",      "a%2eb.com",
                          "a.com:80",   "[::1]",    "user@a.com", "a/b", "a\\b",  "127.0.0.1", "127.1",   "0x7f.0.0.1",   "0x7f000001",
                          "2130706433", "1.2.3.4.", "a.0x10",     "a.1", "a\tb",  "*.a.com",   "a.com\n", "xn--\x80.com", "\xff\xfe"})
    EXPECT_FALSE(canonical_name(bad)) << bad;
  EXPECT_FALSE(canonical_name(std::string(64, 'a') + ".com"));
  EXPECT_FALSE(canonical_name(std::string(1, 'a') + std::string("\0b.com", 6)));
  // Full-width letters and the ideographic full stop are other spellings of the same name, not another name.
  EXPECT_EQ(canonical_name("ｅｘａｍｐｌｅ。com"), "example.com");
}

TEST(CanonicalPattern, NeedsTwoLabelsBehindTheStar) {
  EXPECT_EQ(canonical_pattern("*.Example.com"), "*.example.com");
  for (const char* bad : {"*.com", "*", "*a.example.com", "a.*.com", "**.example.com"}) EXPECT_FALSE(canonical_pattern(bad)) << bad;
}

TEST(Policy, OpenReadsRequestsInTheClearWhereANameIsDenied) {
  const auto handling = [](std::string_view rules, std::uint16_t port) {
    const auto policy =
        Policy::parse(parse_json_object(std::string(R"({"mode":"open","rules":)") + std::string(rules) + "}").value()).value();
    return policy->connect({"other.test", std::nullopt, port}).handling;
  };
  EXPECT_EQ(handling("[]", 80), Verdict::Handling::tunnel);
  EXPECT_EQ(handling(R"([{"action":"deny","cidr":"203.0.113.0/24"}])", 80), Verdict::Handling::tunnel);
  EXPECT_EQ(handling(R"([{"action":"deny","name":"denied.test"}])", 80), Verdict::Handling::inspect_http);
  EXPECT_EQ(handling(R"([{"action":"deny","name":"denied.test"}])", 443), Verdict::Handling::tunnel) << "its ClientHello is looked at";
}

TEST(CanonicalPath, HasOneMeaning) {
  EXPECT_EQ(canonical_path("/a/%62/../c"), "/a/c");
  EXPECT_EQ(canonical_path("//a///b"), "/a/b");
  EXPECT_EQ(canonical_path("/a/b/.."), "/a/");
  EXPECT_EQ(canonical_path("/%2e%2e/x"), "/x");
  EXPECT_EQ(canonical_path("/"), "/");
  EXPECT_EQ(canonical_path("/a;v=1/b..;/%c3%a9"), "/a;v=1/b..;/\xc3\xa9");
  for (const char* bad : {"", "a", "/a%2fb", "/a%5cb", "/a\\b", "/%00", "/%", "/%zz", "/a%252fb", "/a b", "/a/..;/b", "/a/.;x/b", "/a/;/b",
                          "/a/%2e%2e;/b", "/a/%c0%ae%c0%ae/b", "/a/%ff"})
    EXPECT_FALSE(canonical_path(bad)) << bad;
}

TEST(Address, OneSpellingOnly) {
  for (const char* bad : {"127.1", "0x7f.0.0.1", "010.0.0.1", "1.2.3", "::1%lo", "[::1]", "1.2.3.4 "})
    EXPECT_FALSE(Address::parse(bad)) << bad;
  EXPECT_EQ(Address::parse("::ffff:10.0.0.1").value(), Address::parse("10.0.0.1").value());
  EXPECT_FALSE(Cidr::parse("10.0.0.1/8"));
  EXPECT_TRUE(Cidr::parse("0.0.0.0/0").value().contains(Address::parse("9.9.9.9").value()));
  EXPECT_FALSE(Cidr::parse("0.0.0.0/0").value().contains(Address::parse("2001:4860::1").value()));
  EXPECT_TRUE(Cidr::parse("203.0.113.128/25").value().contains(Address::parse("203.0.113.200").value()));
}

TEST(SpecialRanges, AreNamed) {
  const std::pair<const char*, const char*> rows[] = {
      {"10.1.2.3", "private"},     {"127.0.0.1", "loopback"},   {"169.254.169.254", "metadata"},  {"169.254.1.1", "link-local"},
      {"100.64.0.1", "shared"},    {"198.18.0.7", "synthetic"}, {"224.0.0.1", "multicast"},       {"255.255.255.255", "reserved"},
      {"0.0.0.0", "this-network"}, {"::1", "loopback"},         {"::ffff:127.0.0.1", "loopback"}, {"fe80::1", "link-local"},
      {"fd00::1", "private"},      {"ff02::1", "multicast"},    {"64:ff9b::a00:1", "tunnel"},     {"2002:a00:1::", "tunnel"},
      {"2001:0:1::", "tunnel"}};
  for (const auto& [address, why] : rows) EXPECT_EQ(special_range(Address::parse(address).value()).value_or("public"), why) << address;
  for (const char* address : {"1.1.1.1", "8.8.8.8", "2606:4700::1111", "172.32.0.1", "11.0.0.1"})
    EXPECT_FALSE(special_range(Address::parse(address).value())) << address;
}

TEST(Policy, MissingMeansNone) {
  EXPECT_FALSE(Policy::none()->connect(to("example.com")).allowed);
  EXPECT_FALSE(policy(R"({"mode":"allowlist"})")->connect(to("example.com")).allowed);
  EXPECT_FALSE(policy(R"({"mode":"allowlist","rules":[]})")->resolvable("example.com"));
  for (const char* bad : {R"({})", R"({"mode":"all"})", R"({"mode":"allowlist","rules":[{"name":"a.com","typo":1}]})",
                          R"({"mode":"allowlist","rules":[{"name":"a.com","cidr":"1.1.1.1"}]})", R"({"mode":"allowlist","rules":[{}]})",
                          R"({"mode":"allowlist","rules":[{"name":"a.com","protocol":"tcp"}]})",
                          R"({"mode":"allowlist","rules":[{"name":"a.com","ports":[0]}]})",
                          R"({"mode":"allowlist","rules":[{"name":"a.com","ports":["9-1"]}]})",
                          R"({"mode":"allowlist","rules":[{"name":"a.com","tunnel":true,"methods":["GET"]}]})",
                          R"({"mode":"allowlist","rules":[{"id":"x","name":"a.com"},{"id":"x","name":"b.com"}]})"})
    EXPECT_FALSE(Policy::parse(parse_json_object(bad).value())) << bad;
}

TEST(Policy, DenyBeatsAllow) {
  auto p = policy(R"({"mode":"allowlist","rules":[{"name":"*.example.com"},{"name":"bad.example.com","action":"deny"}]})");
  EXPECT_TRUE(p->connect(to("ok.example.com")).allowed);
  EXPECT_TRUE(p->connect(to("deep.er.example.com")).allowed);
  EXPECT_FALSE(p->connect(to("example.com")).allowed);
  EXPECT_FALSE(p->connect(to("notexample.com")).allowed);
  EXPECT_FALSE(p->connect(to("bad.example.com")).allowed);
  EXPECT_EQ(p->connect(to("bad.example.com")).reason, "deny rule r2 names bad.example.com");
  EXPECT_FALSE(p->resolvable("bad.example.com"));
}

TEST(Policy, ADeniedProtocolLeavesOthersAlone) {
  const auto allowed = [](std::string_view text, const Destination& destination) { return policy(text)->connect(destination).allowed; };
  constexpr const char* kNoHttp = R"({"mode":"allowlist","rules":[{"name":"a.test"},{"action":"deny","name":"a.test","protocol":"http"}]})";
  EXPECT_FALSE(allowed(kNoHttp, to("a.test", 80)));
  EXPECT_TRUE(allowed(kNoHttp, to("a.test", 443)));
  constexpr const char* kNoHttps =
      R"({"mode":"allowlist","rules":[{"name":"a.test"},{"action":"deny","name":"a.test","protocol":"https"}]})";
  EXPECT_TRUE(allowed(kNoHttps, to("a.test", 80)));
  EXPECT_FALSE(allowed(kNoHttps, to("a.test", 443)));
  constexpr const char* kNoTcp =
      R"({"mode":"allowlist","rules":[{"name":"a.test"},{"name":"a.test","protocol":"tcp","ports":[22]},{"action":"deny","name":"a.test","protocol":"tcp"}]})";
  EXPECT_TRUE(allowed(kNoTcp, to("a.test", 443)));
  EXPECT_FALSE(allowed(kNoTcp, to("a.test", 22)));
  // Unread bytes may be of any protocol.
  for (const char* protocol : {"http", "https", "tcp"})
    for (const char* mode : {R"("mode":"open","rules":[)", R"("mode":"allowlist","rules":[{"name":"a.test","tunnel":true},)"})
      EXPECT_FALSE(allowed(fmt::format(R"({{{}{{"action":"deny","name":"a.test","protocol":"{}"}}]}})", mode, protocol), to("a.test", 443)))
          << mode << protocol;
}

TEST(Policy, PortsMethodsAndPaths) {
  auto p = policy(R"({"mode":"allowlist","rules":[{"id":"api","name":"api.test","protocol":"https","methods":["GET"],"paths":["/v1"]},
                      {"id":"ssh","name":"git.test","protocol":"tcp","ports":[22]},{"id":"tunnel","name":"raw.test","tunnel":true},
                      {"id":"range","cidr":"203.0.113.0/24","protocol":"tcp","ports":["5000-5010"]}]})");
  EXPECT_EQ(p->connect(to("api.test")).handling, Handling::terminate_tls);
  EXPECT_FALSE(p->connect(to("api.test", 80)).allowed);
  EXPECT_TRUE(p->request(to("api.test"), "GET", "/v1/models").allowed);
  EXPECT_FALSE(p->request(to("api.test"), "GET", "/v10").allowed);
  EXPECT_FALSE(p->request(to("api.test"), "POST", "/v1/models").allowed);
  EXPECT_EQ(p->connect(to("git.test", 22)).handling, Handling::splice);
  EXPECT_FALSE(p->connect(to("git.test", 443)).allowed);
  EXPECT_EQ(p->connect(to("raw.test")).handling, Handling::tunnel);
  Destination bare{"", Address::parse("203.0.113.9").value(), 5005};
  EXPECT_EQ(p->connect(bare).rule, "range");
  bare.port = 80;
  EXPECT_FALSE(p->connect(bare).allowed);
}

TEST(Policy, DenyOfAMethodLeavesTheConnectionButRefusesTheRequest) {
  auto p = policy(R"({"mode":"allowlist","rules":[{"name":"a.test"},{"name":"a.test","action":"deny","methods":["POST"]}]})");
  EXPECT_TRUE(p->resolvable("a.test"));
  EXPECT_TRUE(p->connect(to("a.test")).allowed);
  EXPECT_TRUE(p->request(to("a.test"), "GET", "/").allowed);
  EXPECT_FALSE(p->request(to("a.test"), "POST", "/").allowed);
}

TEST(Policy, ATunnelBesideANarrowRuleDoesNotOpenIt) {
  auto p = policy(R"({"mode":"allowlist","rules":[{"name":"*.a.test","tunnel":true},{"name":"x.a.test","methods":["GET"]}]})");
  EXPECT_EQ(p->connect(to("x.a.test")).handling, Handling::terminate_tls);
  EXPECT_EQ(p->connect(to("y.a.test")).handling, Handling::tunnel);
  EXPECT_TRUE(p->request(to("x.a.test"), "GET", "/").allowed);
  EXPECT_FALSE(p->request(to("x.a.test"), "POST", "/").allowed) << "the tunnel allows no request that is read";
  EXPECT_TRUE(p->request(to("y.a.test"), "POST", "/").allowed);
  p = policy(R"({"mode":"allowlist","rules":[{"name":"x.a.test","protocol":"tcp","ports":[443]},{"name":"x.a.test","methods":["GET"]}]})");
  EXPECT_EQ(p->connect(to("x.a.test")).handling, Handling::terminate_tls);
  EXPECT_FALSE(p->request(to("x.a.test"), "POST", "/").allowed);
}

TEST(Policy, LookupAmongTenThousandNamesIsFast) {
  json::object object{{"mode", "allowlist"}};
  json::array rules;
  for (int i = 0; i < 10'000; ++i) rules.push_back(json::object{{"name", fmt::format("{}host{}.example.com", i % 2 ? "*." : "", i)}});
  object["rules"] = std::move(rules);
  auto p = Policy::parse(object).value();
  const Destination hit = to("a.host9999.example.com");
  EXPECT_TRUE(p->connect(hit).allowed);
  EXPECT_FALSE(p->connect(to("host10001.example.com")).allowed);
  // A thousandfold of the bar: what this catches is a scan of all rules. The bar itself is bench/run policy.
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(p->connect(hit).allowed);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

}  // namespace
}  // namespace space::egress
