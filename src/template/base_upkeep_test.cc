#include "template/base_upkeep.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "template/base_files.h"

namespace space::tmpl {
namespace {

namespace fs = std::filesystem;

struct BaseUpkeepTest : ::testing::Test {
  TempDir dir = TempDir::make("/tmp", "space-bases-test").value();
  std::string add(char letter, std::int64_t created_ms) {
    BaseManifest manifest;
    manifest.key = std::string(64, letter);
    manifest.release_digest = "sha256:r";
    manifest.release_name = "base:latest";
    manifest.state_key = "s";
    manifest.created_ms = created_ms;
    manifest.memory.digest = manifest.state.digest = manifest.overlay.digest = manifest.empty_overlay.digest =
        "sha256:" + std::string(64, '0');
    const fs::path folder = dir.path() / manifest.key;
    EXPECT_TRUE(make_directories(folder));
    EXPECT_TRUE(write_file_durable(folder / kManifestFile, write_manifest(manifest)));
    return manifest.key;
  }
  std::set<std::string> names() const {
    const auto all = list_directory(dir.path()).value();
    return {all.begin(), all.end()};
  }
};

TEST_F(BaseUpkeepTest, WhatNobodyNeedsIsToldFromTheRest) {
  const std::string current = add('a', 10), needed = add('b', 10), old = add('c', 10), young = add('d', 99);
  ASSERT_TRUE(make_directories(dir.path() / std::string(64, 'e')));  // no manifest
  ASSERT_TRUE(write_current(dir.path(), {{current}, 50}));
  const auto read = read_current(dir.path());
  ASSERT_TRUE(read) << describe(read.error());
  EXPECT_EQ(read->keys, std::set<std::string>{current});
  std::set<std::string> unneeded;
  const auto bases = stored_bases(dir.path()).value();
  for (const StoredBase& base : bases)
    if (is_unneeded(base, *read, {needed})) unneeded.insert(base.key);
  EXPECT_EQ(unneeded, std::set<std::string>{old}) << young << " was made after the look";
}

TEST_F(BaseUpkeepTest, ARemovalThatWasCutOffIsFinishedAtTheNextStart) {
  const std::string old = add('c', 10), kept = add('a', 10);
  ASSERT_EQ(::rename((dir.path() / old).c_str(), (dir.path() / (".gone-" + old)).c_str()), 0);
  EXPECT_EQ(stored_bases(dir.path()).value().size(), 1u);
  ASSERT_TRUE(sweep_interrupted(dir.path()));
  EXPECT_EQ(names(), std::set<std::string>{kept});
}

TEST_F(BaseUpkeepTest, ARemovalLeavesNothingAndTwiceIsFine) {
  const std::string old = add('c', 10);
  ASSERT_TRUE(remove_base(dir.path(), old));
  ASSERT_TRUE(remove_base(dir.path(), old));
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(remove_base(dir.path(), "../x").error().code, "invalid_key");
}

TEST_F(BaseUpkeepTest, NoFolderHasNoBases) { EXPECT_TRUE(stored_bases(dir.path() / "none").value().empty()); }

}  // namespace
}  // namespace space::tmpl
