#include "node/shares.h"

#include <gtest/gtest.h>

#include <mutex>

namespace space::node {
namespace {

using std::chrono::milliseconds;

TEST(FairShares, ATenantsMachinesCountTogetherWhatAnothersOneCounts) {
  RunningVms running{{"one", "alone"}};
  for (const char* vm : {"a", "b", "c", "d"}) running[vm] = "many";
  const auto weights = fair_weights(running);
  EXPECT_EQ(weights.at("one"), 1'000U);
  for (const char* vm : {"a", "b", "c", "d"}) EXPECT_EQ(weights.at(vm), 250U);
  running["e"] = "many";
  EXPECT_EQ(fair_weights(running).at("a"), 125U) << "up to eight";
  for (int i = 0; i < 1000; ++i) running["more" + std::to_string(i)] = "many";
  EXPECT_EQ(fair_weights(running).at("a"), 1U);
  EXPECT_TRUE(fair_weights({}).empty());
}

TEST(FairShares, WhoComesIsToldAtOnceAndTheOthersOnceForAll) {
  asio::io_context loop;
  BlockingPool pool(1);
  std::mutex mutex;
  std::vector<std::pair<std::string, std::uint32_t>> told;
  FairShares shares(
      loop.get_executor(), pool,
      [&](const std::string& vm, std::uint32_t weight) {
        const std::lock_guard lock(mutex);
        told.emplace_back(vm, weight);
      },
      milliseconds(20));
  shares.join("a", "t");
  shares.join("b", "t");
  shares.join("c", "t");
  loop.run();
  using Told = std::vector<std::pair<std::string, std::uint32_t>>;
  EXPECT_EQ(told, (Told{{"a", 1'000}, {"b", 500}, {"c", 250}, {"a", 250}, {"b", 250}}));

  told.clear();
  loop.restart();
  shares.leave("a");
  shares.leave("b");
  shares.leave("b");
  loop.run();
  EXPECT_EQ(told, (Told{{"c", 1'000}}));

  told.clear();
  loop.restart();
  shares.join("d", "other");
  shares.leave("d");
  loop.run();
  EXPECT_EQ(told, (Told{{"d", 1'000}})) << "nothing has changed for those that stay";

  told.clear();
  loop.restart();
  shares.leave("c");
  shares.join("c", "t");
  loop.run();
  EXPECT_EQ(told, Told{}) << "it stood still for a moment only";

  shares.leave("c");
  loop.restart();
  loop.run();
  shares.join("c", "t");
  loop.restart();
  loop.run();
  EXPECT_EQ(told, (Told{{"c", 1'000}})) << "who knows what it was told meanwhile";
  pool.join();
}

}  // namespace
}  // namespace space::node
