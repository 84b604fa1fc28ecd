#include "template/recipe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"

namespace space::tmpl {
namespace {

class RecipeTest : public ::testing::Test {
 protected:
  RecipeTest() : dir_(*TempDir::make(std::filesystem::temp_directory_path(), "space-recipe-")) {}
  Result<RuntimeConfig> read(const std::string& text) {
    std::ofstream(dir_.path() / "template.toml") << text;
    return read_recipe(dir_.path());
  }
  TempDir dir_;
};

TEST_F(RecipeTest, WhatIsNotSaidHasADefault) {
  const auto config = read("");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->cpus, 1U);
  EXPECT_EQ(config->memory_mib, 512U);
  EXPECT_EQ(config->disk_mib, 4096U);
  EXPECT_EQ(config->user, "user");
}

TEST_F(RecipeTest, SizeUserAndEnvironment) {
  const auto config = read("user = \"root\"\nworkdir = \"/srv\"\n[size]\ncpus = 2\nmemory_mib = 1024\n[env]\nLANG = \"C.UTF-8\"\n");
  ASSERT_TRUE(config) << describe(config.error());
  EXPECT_EQ(config->cpus, 2U);
  EXPECT_EQ(config->memory_mib, 1024U);
  EXPECT_EQ(config->user, "root");
  EXPECT_EQ(config->workdir, "/srv");
  EXPECT_EQ(config->env.at("LANG"), "C.UTF-8");
}

TEST_F(RecipeTest, AStartCommandAndWhenItServes) {
  const auto config = read("[start]\ncommand = \"serve\"\nready = \"curl -f localhost\"\n");
  ASSERT_TRUE(config) << describe(config.error());
  EXPECT_EQ(config->start, "serve");
  EXPECT_EQ(config->ready, "curl -f localhost");
  // Only then it is part of what the digest stands for: templates of before keep theirs.
  EXPECT_NE(release_digest("sha256:x", *config), release_digest("sha256:x", RuntimeConfig{}));
}

TEST_F(RecipeTest, MistakesNameTheFile) {
  for (const char* text : {"user = 1", "user = \"\"", "workdir = \"here\"", "size = 1", "[size]\ncpus = 0", "[size]\ncpus = \"2\"",
                           "[size]\ncpus = 1.5", "[size]\ncores = 2", "start = \"x\"", "[start]\nrun = \"x\"", "[start]\ncommand = \"\"",
                           "[env]\nA = 1", "colour = \"red\"", "[size", "cpus = 2"}) {
    const auto config = read(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, "template_recipe") << text;
    EXPECT_NE(config.error().message.find("template.toml"), std::string::npos) << config.error().message;
  }
  EXPECT_EQ(read_recipe(dir_.path() / "nowhere").error().code, "template_recipe");
}

}  // namespace
}  // namespace space::tmpl
