#include "cli/supervisor.h"

#include <gtest/gtest.h>

namespace space::cli {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, DoublesUpToFiveSecondsWhileARoleDiesAtOnce) {
  Backoff backoff;
  EXPECT_EQ(backoff.after_a_life_of(1ms), 100ms);
  EXPECT_EQ(backoff.after_a_life_of(1ms), 200ms);
  for (int i = 0; i < 10; ++i) backoff.after_a_life_of(1ms);
  EXPECT_EQ(backoff.after_a_life_of(1ms), 5s);
}

TEST(Backoff, IsShortAgainAfterALongLife) {
  Backoff backoff;
  for (int i = 0; i < 10; ++i) backoff.after_a_life_of(1ms);
  EXPECT_EQ(backoff.after_a_life_of(31s), 100ms);
}

TEST(Listen, TakesLiteralsOfBothFamilies) {
  const auto four = parse_listen("127.0.0.1:7070");
  ASSERT_TRUE(four);
  EXPECT_EQ(four->address, "127.0.0.1");
  EXPECT_EQ(four->port, 7070);
  const auto six = parse_listen("[::1]:0");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->address, "::1");
  EXPECT_EQ(six->port, 0);
}

TEST(Listen, RefusesWhatIsNoAddressAndPort) {
  for (const char* text : {"", "7070", ":7070", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70707", "127.0.0.1:x", "127.0.0.1:80x"})
    EXPECT_FALSE(parse_listen(text)) << text;
}

TEST(Quota, IsATenantAndANumber) {
  const auto quota = parse_quota("acme=2048");
  ASSERT_TRUE(quota);
  EXPECT_EQ(quota->tenant, "acme");
  EXPECT_EQ(quota->mib, 2048U);
  for (const char* text : {"", "acme", "acme=", "=5", "acme=-1", "acme=5x", "a/b=5", "acme=99999999999999"})
    EXPECT_FALSE(parse_quota(text)) << text;
}

TEST(Settings, ReachARoleAsTheyAre) {
  ServerSettings settings;
  settings.storage_quotas = {"acme=1", "other=0"};
  settings.no_limits = settings.without_filters = true;
  settings.log_level = log::Level::warn;
  const auto words = to_arguments(settings);
  for (const char* word : {"--no-limits", "--bench-without-filters"}) EXPECT_NE(std::ranges::find(words, word), words.end()) << word;
  const auto level = std::ranges::find(words, "--log-level");
  ASSERT_NE(level, words.end());
  EXPECT_EQ(*(level + 1), "warn");
  EXPECT_EQ(std::ranges::count(words, "--storage-quota-for"), 2);
}

}  // namespace
}  // namespace space::cli
