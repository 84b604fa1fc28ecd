// What counts as use of a sandbox that nobody asks for anything.
#include <gtest/gtest.h>

#include "node/report_refusals.h"
#include "node/watch_use.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

std::vector<std::pair<std::int64_t, int>> heights(const GuestWork& work, Instant start) {
  std::vector<std::pair<std::int64_t, int>> out;
  for (const GuestWork::Height& one : work.heights())
    out.emplace_back(one.percent, static_cast<int>(std::chrono::duration_cast<seconds>(one.last - start).count()));
  return out;
}

TEST(GuestWork, TheLastTimeOfEveryHeightIsKnown) {
  using Expected = std::vector<std::pair<std::int64_t, int>>;
  const Instant start{};
  GuestWork work;
  std::uint64_t ticks = 5'000;  // of its life before the first look, which is no work of now
  const auto look = [&](int at_s, std::uint64_t more) { work.look(ticks += more, 100, start + seconds(at_s)); };
  look(0, 0);
  EXPECT_TRUE(work.heights().empty());
  look(2, 160);
  EXPECT_EQ(heights(work, start), (Expected{{80, 2}}));
  look(4, 10);  // five percent of two seconds, and not more than that
  look(6, 11);
  EXPECT_EQ(heights(work, start), (Expected{{80, 2}, {6, 6}}));
  look(8, 0);
  look(10, 1);
  EXPECT_EQ(heights(work, start), (Expected{{80, 2}, {6, 6}, {1, 10}}));
  look(12, 60);
  EXPECT_EQ(heights(work, start), (Expected{{80, 2}, {30, 12}}));
  look(14, 900);  // several cores
  EXPECT_EQ(heights(work, start), (Expected{{GuestWork::kHighest, 14}}));
  for (int at = 16; at < 2'000; at += 2) look(at, static_cast<std::uint64_t>(at % 401));
  EXPECT_LE(work.heights().size(), static_cast<std::size_t>(GuestWork::kHighest));
}

TEST(GuestWork, AnotherMachineAndAPauseAreNoWork) {
  const Instant start{};
  GuestWork work;
  work.look(10'000, 100, start);
  work.look(50, 100, start + seconds(2));
  EXPECT_TRUE(work.heights().empty()) << "woken: its VMM is a new one";
  work.stand();
  work.look(5'000, 100, start + seconds(4));
  EXPECT_TRUE(work.heights().empty()) << "what a checkpoint took while it stood still";
  work.look(5'100, 100, start + seconds(6));
  EXPECT_EQ(work.heights().size(), 1u);
}

TEST(RefusalCounts, GrowFromWhatWasToldAndNeverTwice) {
  RefusalCounts counts;
  EXPECT_EQ(counts.grown("new", {1, 2, 3, 4, 5}), (wire::Refusals{1, 2, 3, 4, 5}));
  EXPECT_EQ(counts.grown("new", {1, 2, 3, 4, 6}), (wire::Refusals{1, 2, 3, 4, 6})) << "nobody was told yet";
  counts.told("new", {1, 2, 3, 4, 6});
  EXPECT_EQ(counts.grown("new", {1, 2, 4, 4, 6}), (wire::Refusals{0, 0, 1, 0, 0}));
  EXPECT_EQ(counts.grown("new", {0, 0, 0, 0, 7}), (wire::Refusals{0, 0, 0, 0, 1})) << "less than before is nothing new";
  counts.begin_with("old", {9, 9, 9, 9, 9});
  EXPECT_EQ(counts.grown("old", {9, 9, 9, 9, 9}), wire::Refusals{});
  counts.keep_only([](const std::string& vm) { return vm == "new"; });
  EXPECT_EQ(counts.grown("old", {9, 0, 0, 0, 0}), (wire::Refusals{9, 0, 0, 0, 0})) << "forgotten";
}

TEST(Traffic, BytesAndWhoWaitsForAnAnswerAreUse) {
  Instant now{};
  Traffic traffic;
  Traffic::Counters counters;
  EXPECT_FALSE(traffic.look(counters, now));
  const auto after = [&](auto time) { return traffic.look(counters, now += time); };
  EXPECT_FALSE(after(seconds(2)));

  counters = {1, 1, 900};  // a request went out, and its answer is long in coming
  EXPECT_TRUE(after(seconds(2)));
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(after(seconds(2))) << "it waits";
  counters.bytes += 10'000;
  EXPECT_TRUE(after(seconds(2)));

  // The connection stays open for a next request that does not come.
  EXPECT_TRUE(after(minutes(5) - milliseconds(1)));
  EXPECT_FALSE(after(milliseconds(1)));
  EXPECT_FALSE(after(minutes(60)));
  counters.bytes += 1;
  EXPECT_TRUE(after(seconds(2))) << "and then it does";

  counters.open = 0;
  EXPECT_FALSE(after(seconds(2)));
  counters.bytes += 50;  // open and closed again between two looks
  EXPECT_TRUE(after(seconds(2)));
  EXPECT_FALSE(after(seconds(2)));
}

TEST(Traffic, AWorkerThatBeganAnewIsNoUseAndWhatItThenCountsIs) {
  Instant now{};
  Traffic traffic;
  (void)traffic.look({0, 7, 7'000}, now);
  EXPECT_FALSE(traffic.look({0, 0, 0}, now += seconds(2)));
  EXPECT_TRUE(traffic.look({0, 1, 10}, now += seconds(2)));
}

TEST(Traffic, OneThatConnectsWithoutAWordIsWaitedForToo) {
  Instant now{};
  Traffic traffic;
  (void)traffic.look({0, 3, 300}, now);
  now += minutes(60);
  EXPECT_TRUE(traffic.look({1, 4, 300}, now));
  EXPECT_FALSE(traffic.look({1, 4, 300}, now + minutes(5)));
}

TEST(Traffic, AConnectionThatIsKeptForLaterRestsThoughOthersAreRefused) {
  Instant now{};
  Traffic traffic;
  (void)traffic.look({1, 1, 300}, now);
  // What is refused meanwhile is in none of these.
  for (int i = 0; i < 200; ++i) (void)traffic.look({1, 1, 300}, now += seconds(2));
  EXPECT_FALSE(traffic.look({1, 1, 300}, now += seconds(2)));
}

TEST(Traffic, TheGatewaysAnswerIsReadStrictly) {
  const auto read = read_traffic(R"({"sandboxes":[{"sandbox":"a","open":1,"connections":2,"bytes":9},)"
                                 R"({"sandbox":"b","open":0,"connections":0,"bytes":0,"later":true}]})");
  ASSERT_TRUE(read) << describe(read.error());
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ(read->at("a").open, 1);
  EXPECT_EQ(read->at("a").bytes, 9);
  EXPECT_TRUE(read_traffic(R"({"sandboxes":[]})"));
  for (const char* bad : {"", "[]", R"({"sandboxes":[1]})", R"({"sandboxes":[{"sandbox":"a"}]})",
                          R"({"sandboxes":[{"sandbox":"a","open":-1,"connections":2,"bytes":9}]})",
                          R"({"sandboxes":[{"sandbox":"a","open":1,"connections":2,"bytes":9223372036854775807}]})"})
    EXPECT_FALSE(read_traffic(bad)) << bad;
}

TEST(Idle, WhatMayNotHaveBeenNoticedIsNoRest) {
  const Instant now = Instant{} + seconds(100);
  EXPECT_EQ(unused_ms(now, now), 0);
  EXPECT_EQ(unused_ms(now - kUnseen, now), 0);
  EXPECT_EQ(unused_ms(now - kUnseen - milliseconds(1'500), now), 1'500);
}

}  // namespace
}  // namespace space::node
