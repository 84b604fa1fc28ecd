#include "node/shares.h"

#include <gtest/gtest.h>

namespace space::node {
namespace {

TEST(FairShares, ATenantsMachinesCountTogetherWhatAnothersOneCounts) {
  std::vector<RunningVm> running{{"one", "alone"}};
  for (const char* vm : {"a", "b", "c", "d"}) running.push_back({vm, "many"});
  const auto weights = fair_weights(running);
  EXPECT_EQ(weights.at("one"), 100U);
  for (const char* vm : {"a", "b", "c", "d"}) EXPECT_EQ(weights.at(vm), 25U);
  running.push_back({"e", "many"});
  EXPECT_EQ(fair_weights(running).at("a"), 12U) << "up to eight";
  for (int i = 0; i < 1000; ++i) running.push_back({"more" + std::to_string(i), "many"});
  EXPECT_EQ(fair_weights(running).at("a"), 1U);
  EXPECT_TRUE(fair_weights({}).empty());
}

}  // namespace
}  // namespace space::node
