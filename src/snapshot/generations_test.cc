#include "snapshot/generations.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace space::snapshot {
namespace {

std::vector<BlobRef> of(std::initializer_list<std::uint64_t> sizes) {
  std::vector<BlobRef> out;
  for (const std::uint64_t bytes : sizes) out.push_back({"", bytes});
  return out;
}

std::pair<std::size_t, std::size_t> choice(std::initializer_list<std::uint64_t> sizes) {
  const auto chosen = choose_merge(of(sizes));
  return chosen ? std::pair(chosen->first, chosen->count) : std::pair<std::size_t, std::size_t>(0, 0);
}

TEST(Generations, AVmNeverOpensMoreThanEightFiles) {
  EXPECT_EQ(most_generations(2), 5u);
  EXPECT_EQ(most_generations(3), 4u);
  EXPECT_EQ(most_generations(7), 4u) << "room for one more than a merge leaves, whatever the base is";
}

TEST(Generations, AFewAreLeftAlone) {
  EXPECT_EQ(choice({}), std::pair(0ul, 0ul));
  EXPECT_EQ(choice({5, 5, 5}), std::pair(0ul, 0ul));
}

TEST(Generations, ALargeOldOneIsNotCopiedForSmallNewOnes) {
  EXPECT_EQ(choice({1000, 100, 1, 1, 1}), std::pair(2ul, 3ul));
  EXPECT_EQ(choice({1000, 3, 1, 1, 1}), std::pair(1ul, 4ul));
  EXPECT_EQ(choice({1, 1, 1, 1, 1}), std::pair(0ul, 5ul));
  EXPECT_EQ(choice({1, 1, 1, 1000}), std::pair(0ul, 4ul));
}

TEST(Generations, AnOldDiskWithManyComesDownToAFewInOneStep) {
  const auto chosen = choose_merge(std::vector<BlobRef>(20, BlobRef{"", 7})).value();
  EXPECT_LE(20 - chosen.count + 1, kFewGenerations);
}

// A thousand snapshots that each add as much: how often a byte is copied, and how many files there are at any time.
TEST(Generations, AThousandSnapshotsCopyEachByteAFewDozenTimes) {
  std::vector<BlobRef> disk;
  std::uint64_t copied = 0;
  for (int i = 0; i < 1000; ++i) {
    disk.push_back({"", 1});
    ASSERT_LE(disk.size(), most_generations(2));
    if (disk.size() < most_generations(2)) continue;
    const MergeChoice chosen = choose_merge(disk).value();
    const auto from = disk.begin() + static_cast<std::ptrdiff_t>(chosen.first);
    const std::uint64_t bytes =
        std::accumulate(from, disk.end(), std::uint64_t{0}, [](std::uint64_t sum, const BlobRef& one) { return sum + one.bytes; });
    copied += bytes;
    disk.erase(from, disk.end());
    disk.push_back({"", bytes});
  }
  EXPECT_LE(copied, 50'000u);
}

}  // namespace
}  // namespace space::snapshot
