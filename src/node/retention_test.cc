#include "node/retention.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace space::node {
namespace {

constexpr std::int64_t kDay = 86'400'000;

std::shared_ptr<const Checkpoint> one(std::string id, std::string sandbox, std::int64_t created, bool automatic, std::string name = {}) {
  auto out = std::make_shared<Checkpoint>();
  out->manifest.id = std::move(id);
  out->manifest.sandbox = std::move(sandbox);
  out->manifest.created_ms = created;
  out->manifest.automatic = automatic;
  out->manifest.kind = automatic ? snapshot::CheckpointKind::file_snapshot : snapshot::CheckpointKind::checkpoint;
  out->manifest.name = std::move(name);
  return out;
}

std::vector<std::string> sorted(std::vector<std::string> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

using List = std::vector<std::string>;

TEST(Retention, WithoutRulesEverythingThatWasAskedForStays) {
  EXPECT_EQ(retired({one("a", "s", 0, false), one("b", "s", 1, false)}, {}, {{"s", 1}}, 100 * kDay), List{});
}

TEST(Retention, OfEachSandboxTheNewestOnesAndTheNamedStay) {
  const std::vector<std::shared_ptr<const Checkpoint>> all{one("a", "s", 0, false), one("b", "s", 1, false), one("c", "s", 2, false),
                                                           one("d", "t", 0, false), one("n", "s", 0, false, "keep me")};
  EXPECT_EQ(sorted(retired(all, {2, 0}, {{"s", 1}, {"t", 1}}, kDay)), List{"a"});
  EXPECT_EQ(sorted(retired(all, {0, 5 * kDay}, {{"s", 1}, {"t", 1}}, kDay)), List{});
  EXPECT_EQ(sorted(retired(all, {0, 5 * kDay}, {}, 6 * kDay)), (List{"a", "b", "c", "d"}));
}

TEST(Retention, AutomaticSnapshotsGoByTheirSandboxesNumberAndWithIt) {
  const std::vector<std::shared_ptr<const Checkpoint>> all{one("a", "s", 0, true), one("b", "s", 1, true), one("c", "s", 2, true),
                                                           one("d", "gone", 2, true), one("e", "s", 0, false)};
  EXPECT_EQ(sorted(retired(all, {}, {{"s", 2}}, kDay)), (List{"a", "d"}));
  EXPECT_EQ(sorted(retired(all, {}, {{"s", 20}, {"gone", 1}}, kDay)), List{});
}

}  // namespace
}  // namespace space::node
