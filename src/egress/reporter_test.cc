// What a flood of one decision does to the others: nothing.
#include "egress/reporter.h"

#include <fmt/format.h>

#include "egress/dns_server.h"
#include "egress/testing.h"

namespace space::egress {
namespace {

using namespace std::chrono_literals;

Event event_of(std::string kind, std::string verdict, std::string name, std::string path = "") {
  Event event;
  event.sandbox = "sandboxsandboxsandbox123";
  event.kind = std::move(kind);
  event.verdict = std::move(verdict);
  event.name = std::move(name);
  event.path = std::move(path);
  event.port = 443;
  event.bytes_up = 10;
  return event;
}

std::uint64_t sum(const std::vector<Event>& events) {
  std::uint64_t out = 0;
  for (const Event& event : events) out += event.count;
  return out;
}

TEST(Reporter, AFloodOfRefusedNamesHidesNoOtherDecisionAndIsCountedWhole) {
  Reporter reporter;
  const auto now = std::chrono::steady_clock::now();
  std::vector<Event> told;
  const auto take = [&](Event event) {
    if (auto at_once = reporter.take(std::move(event), now)) told.push_back(std::move(*at_once));
  };
  for (int i = 0; i < 5'000; ++i) take(event_of("dns", "deny", fmt::format("n{}.example.com", i)));
  take(event_of("request", "allow", "marked.example.com", "/marked"));
  take(event_of("security", "deny", "two-hosts.example.com"));
  EXPECT_EQ(told.size(), Reporter::kOthersPerSecond + 2);
  EXPECT_EQ(told[told.size() - 2].path, "/marked");
  EXPECT_EQ(told.back().kind, "security");
  EXPECT_TRUE(reporter.waiting());
  const std::vector<Event> waited = reporter.flush();
  EXPECT_EQ(waited.size(), Reporter::kMostAlike + 1);
  EXPECT_EQ(std::count_if(waited.begin(), waited.end(), [](const Event& e) { return e.unreported; }), 1);
  EXPECT_TRUE(waited.back().unreported && waited.back().kind == "dns" && waited.back().verdict == "deny");
  EXPECT_EQ(waited.back().sandbox, "sandboxsandboxsandbox123");
  EXPECT_EQ(sum(told) + sum(waited), 5'002U);
  EXPECT_FALSE(reporter.waiting());
  EXPECT_TRUE(reporter.flush().empty());
}

TEST(Reporter, AFloodOfEveryKindIsHeldToOneBudgetInWhichEachKindKeepsAFew) {
  Reporter reporter;
  const auto now = std::chrono::steady_clock::now();
  std::vector<Event> told;
  const auto take = [&](Event event) {
    if (auto at_once = reporter.take(std::move(event), now)) told.push_back(std::move(*at_once));
  };
  constexpr const char *kKinds[] = {"dns", "connection", "request", "limit"}, *kVerdicts[] = {"allow", "deny", "error", "monitor"};
  constexpr std::uint64_t kEach = 300;
  for (const char* kind : kKinds)
    for (const char* verdict : kVerdicts)
      for (std::uint64_t i = 0; i < kEach; ++i) take(event_of(kind, verdict, fmt::format("n{}.example.com", i)));
  EXPECT_LE(told.size(), Reporter::kAllPerSecond + 16 * Reporter::kFewPerSecond);
  EXPECT_GE(told.size(), Reporter::kAllPerSecond);
  const std::size_t before = told.size();
  for (std::uint64_t i = 0; i < Reporter::kFewPerSecond; ++i) take(event_of("security", "deny", "two-hosts.example.com"));
  EXPECT_EQ(told.size(), before + Reporter::kFewPerSecond);
  take(event_of("security", "deny", "late.example.com"));
  EXPECT_EQ(told.size(), before + Reporter::kFewPerSecond);

  const std::vector<Event> waited = reporter.flush();
  const auto apart = std::count_if(waited.begin(), waited.end(), [](const Event& e) { return !e.unreported; });
  EXPECT_EQ(static_cast<std::size_t>(apart), Reporter::kMostAlike);
  EXPECT_EQ(waited.size(), Reporter::kMostAlike + 16);
  EXPECT_TRUE(std::any_of(waited.begin(), waited.end(), [](const Event& e) { return e.name == "late.example.com"; }));
  constexpr std::uint64_t kAll = 16 * kEach + Reporter::kFewPerSecond + 1;
  EXPECT_EQ(sum(told) + sum(waited), kAll);
  std::uint64_t bytes = 0;
  for (const Event& event : told) bytes += event.bytes_up;
  for (const Event& event : waited) bytes += event.bytes_up;
  EXPECT_EQ(bytes, 10 * kAll);
  EXPECT_FALSE(reporter.waiting());
}

TEST(Reporter, TellsEqualDecisionsAsOneWithWhatTheyAgreeOn) {
  Reporter reporter;
  const auto now = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < Reporter::kRequestsPerSecond; ++i)
    EXPECT_TRUE(reporter.take(event_of("request", "allow", "a.example.com", "/x"), now));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(reporter.take(event_of("request", "allow", "a.example.com", fmt::format("/{}", i)), now));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(reporter.take(event_of("request", "allow", "b.example.com", "/same"), now));
  Event credential = event_of("request", "allow", "b.example.com", "/same");
  credential.credential = "key";
  EXPECT_FALSE(reporter.take(std::move(credential), now));
  const std::vector<Event> waited = reporter.flush();
  ASSERT_EQ(waited.size(), 3U);
  const auto find = [&](std::string_view name, std::string_view credential_name) {
    return *std::find_if(waited.begin(), waited.end(), [&](const Event& e) { return e.name == name && e.credential == credential_name; });
  };
  const Event a = find("a.example.com", ""), b = find("b.example.com", ""), used = find("b.example.com", "key");
  EXPECT_EQ(a.count, 3U);
  EXPECT_EQ(a.path, "");
  EXPECT_EQ(a.bytes_up, 30U);
  EXPECT_EQ(b.count, 2U);
  EXPECT_EQ(b.path, "/same");
  EXPECT_EQ(used.count, 1U);
  EXPECT_EQ(a.to_json().at("count").to_number<std::uint64_t>(), 3U);
  EXPECT_FALSE(used.to_json().contains("count"));
  EXPECT_FALSE(used.to_json().contains("unreported"));
  // The budget fills again.
  EXPECT_TRUE(reporter.take(event_of("request", "allow", "a.example.com"), now + 1s));
}

TEST(Reporter, HoldsNoMoreOfATextThanIsTold) {
  Reporter reporter;
  const auto now = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i <= Reporter::kOthersPerSecond; ++i)
    (void)reporter.take(event_of("request", "deny", std::string(100'000, 'n'), std::string(100'000, '\n')), now);
  const std::vector<Event> waited = reporter.flush();
  ASSERT_EQ(waited.size(), 1U);
  EXPECT_EQ(waited[0].name.size(), Event::kLongestName);
  EXPECT_EQ(waited[0].path, std::string(Event::kLongestPath, '?'));
}

TEST(Sandbox, TellsWhatWaitsAfterASecondAndWhenItLeaves) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    test::Gateway gateway(executor);
    const auto flood = [&]() -> asio::awaitable<void> {
      for (int i = 0; i < 300; ++i) {
        std::string query = dns_query(7, fmt::format("n{}.example.com", i), DnsType::a).value();
        (void)co_await answer_dns(gateway.sandbox, std::move(query), true);
      }
    };
    const auto counted = [&] {
      std::uint64_t out = 0;
      for (const json::object& event : gateway.events) out += event.contains("count") ? event.at("count").to_number<std::uint64_t>() : 1;
      return out;
    };
    co_await flood();
    EXPECT_LT(counted(), 300U);
    Event marked;
    marked.kind = "request";
    marked.verdict = "allow";
    marked.path = "/marked";
    gateway.sandbox->report(std::move(marked));
    EXPECT_TRUE(gateway.saw("request", "allow"));
    for (int i = 0; i < 40 && counted() < 301; ++i) co_await sleep_for(100ms);
    EXPECT_EQ(counted(), 301U);
    // Those that wait when the sandbox leaves are told then, with nothing behind them.
    co_await flood();
    EXPECT_LT(counted(), 601U);
    gateway.sandbox->detach();
    EXPECT_EQ(counted(), 601U);
    EXPECT_EQ(gateway.sandbox->counters().denied, 600U);
  });
}

}  // namespace
}  // namespace space::egress
