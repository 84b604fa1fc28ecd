#include "node/states.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.h"

namespace space::node {
namespace {

TEST(States, OnlyTheTableHappens) {
  EXPECT_EQ(next_state(SandboxState::creating, SandboxEvent::created).value(), SandboxState::running);
  EXPECT_EQ(next_state(SandboxState::running, SandboxEvent::pause).value(), SandboxState::paused);
  const auto refused = next_state(SandboxState::ended, SandboxEvent::resume);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::conflict);
  EXPECT_EQ(refused.error().code, "sandbox_ended");
  EXPECT_FALSE(refused.error().next.empty());
}

TEST(States, EveryStateButTheLastCanBeRemovedAndRowsAreUnique) {
  std::set<std::pair<SandboxState, SandboxEvent>> seen;
  std::set<SandboxState> removable;
  for (const Transition& t : transitions()) {
    EXPECT_TRUE(seen.emplace(t.from, t.event).second) << to_string(t.from) << to_string(t.event);
    if (t.event == SandboxEvent::remove) removable.insert(t.from);
    EXPECT_NE(t.from, SandboxState::deleted);
  }
  EXPECT_EQ(removable.size(), 7u);
}

TEST(States, NamesGoBothWays) {
  for (const Transition& t : transitions()) EXPECT_EQ(state_from(to_string(t.from)), t.from);
  EXPECT_FALSE(state_from("Running"));
  EXPECT_FALSE(state_from(""));
}

// SPACE_WRITE_DOCS=1 node_test --gtest_filter=States.* writes the page.
TEST(States, ThePageInTheDocsIsTheTable) {
  const std::filesystem::path page = std::filesystem::path(SPACE_SOURCE_DIR) / "docs/states.md";
  if (std::getenv("SPACE_WRITE_DOCS")) {
    ASSERT_TRUE(write_file_durable(page, states_page(), 0644));
  }
  const auto stored = read_file(page, 1 << 20);
  ASSERT_TRUE(stored) << describe(stored.error());
  EXPECT_EQ(*stored, states_page()) << "run SPACE_WRITE_DOCS=1 node_test --gtest_filter='States.*'";
}

}  // namespace
}  // namespace space::node
