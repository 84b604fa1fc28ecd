#include "template/release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "template/layout.h"
#include "template/publish.h"

namespace space::tmpl {
namespace {
namespace fs = std::filesystem;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() : dir_(*TempDir::make(fs::temp_directory_path(), "space-store-")), store_(dir_.path() / "templates") {
    put("kernels/6.1-1/vmlinux", "kernel");
    put("initramfs/6.1-1/abc.cpio", "initramfs");
    fs::create_symlink("abc.cpio", store_.root() / "initramfs/6.1-1/current");
  }
  void put(const std::string& path, const std::string& content) {
    fs::create_directories((store_.root() / path).parent_path());
    std::ofstream(store_.root() / path) << content;
  }
  NewRelease staged(const std::string& name, const std::string& tag, char content) {
    const auto folder = "staging-" + name + "." + tag;
    put(folder + "/rootfs.ext4", "image");
    put(folder + "/lock", "lock");
    NewRelease next;
    next.name = name;
    next.tag = tag;
    next.staged = store_.root() / folder;
    next.created_ms = 7;
    next.tree_digest = next.image_digest = "sha256:" + std::string(64, content);
    next.kernel_version = "6.1-1";
    return next;
  }
  fs::path content_of(const Release& release) { return Layout(store_.root()).content(release.digest); }

  TempDir dir_;
  TemplateStore store_;
};

TEST(ReferenceTest, NameTagAndDigest) {
  const auto plain = parse_reference("base");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->name, "base");
  EXPECT_EQ(plain->tag, "latest");
  const auto tagged = parse_reference("my-base_2:2026.11");
  ASSERT_TRUE(tagged);
  EXPECT_EQ(tagged->tag, "2026.11");
  const auto digest = "sha256:" + std::string(64, 'a');
  ASSERT_TRUE(parse_reference(digest));
  EXPECT_EQ(parse_reference(digest)->digest, digest);
}

TEST(ReferenceTest, WhatCouldBeAPathOrIsNotAName) {
  for (const char* text :
       {"", ":", "base:", ":latest", "../base", "base:..", "base:.x", "a/b", "Base", "base:a:b", "base latest", "sha256:abc", "b\n"})
    EXPECT_FALSE(parse_reference(text)) << text;
  EXPECT_FALSE(parse_reference(std::string(65, 'a')));
  EXPECT_FALSE(parse_reference("sha256:" + std::string(64, 'G')));
}

TEST_F(StoreTest, AnEmptyStoreKnowsNothing) {
  EXPECT_EQ(store_.resolve("base").error().code, "template_not_found");
  EXPECT_TRUE(store_.list()->empty());
  EXPECT_EQ(store_.remove("base").error().code, "template_not_found");
}

TEST_F(StoreTest, PublishedReleaseIsFoundByNameTagAndDigest) {
  auto next = staged("base", "latest", '1');
  next.config.env["LANG"] = "C.UTF-8";
  const auto made = publish(store_, next);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(made->created_ms, 7);
  EXPECT_EQ(made->env.at("LANG"), "C.UTF-8");
  EXPECT_EQ(read_file(made->rootfs, 100), "image");
  EXPECT_EQ(made->initramfs.filename(), "abc.cpio");
  EXPECT_FALSE(fs::exists(next.staged));
  for (const std::string& reference : {std::string("base"), std::string("base:latest"), made->digest}) {
    const auto found = store_.resolve(reference);
    ASSERT_TRUE(found) << reference;
    EXPECT_EQ(found->digest, made->digest);
  }
}

TEST_F(StoreTest, ATagIsNeverWrittenAgain) {
  const auto first = publish(store_, staged("base", "latest", '1'));
  ASSERT_TRUE(first);
  const auto same = publish(store_, staged("base", "latest", '1'));
  ASSERT_TRUE(same);
  EXPECT_EQ(same->digest, first->digest);
  const auto other = publish(store_, staged("base", "latest", '2'));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, "template_tag_exists");
  EXPECT_NE(other.error().next.find("another tag"), std::string::npos);
  EXPECT_EQ(store_.resolve("base")->digest, first->digest);
  EXPECT_TRUE(publish(store_, staged("base", "next", '2')));
}

TEST_F(StoreTest, ContentStaysWhileATagNamesIt) {
  const auto one = publish(store_, staged("base", "latest", '1'));
  const auto two = publish(store_, staged("base", "2026", '1'));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->rootfs, two->rootfs);
  ASSERT_TRUE(store_.remove("base:latest"));
  EXPECT_TRUE(fs::exists(two->rootfs));
  EXPECT_TRUE(store_.resolve(two->digest));
  ASSERT_TRUE(store_.remove(two->digest));
  EXPECT_FALSE(fs::exists(content_of(*two)));
  EXPECT_EQ(store_.resolve(two->digest).error().code, "template_not_found");
}

TEST_F(StoreTest, TheConfigurationIsPartOfTheDigest) {
  RuntimeConfig config;
  const std::string tree = "sha256:" + std::string(64, '1');
  const auto digest = release_digest(tree, config);
  EXPECT_EQ(digest, release_digest(tree, config));
  config.memory_mib = 1024;
  EXPECT_NE(digest, release_digest(tree, config));
}

TEST_F(StoreTest, DamagedReleasesAreRefusedByName) {
  const auto good = publish(store_, staged("good", "latest", '1'));
  const auto release = publish(store_, staged("bad", "latest", '2'));
  ASSERT_TRUE(good && release);
  const auto record = content_of(*release) / "release.json";
  const auto content = *read_file(record, 1 << 16);
  fs::permissions(record, fs::perms::owner_write, fs::perm_options::add);

  auto expect_refused = [&](const std::string& what) {
    const auto found = store_.resolve("bad");
    ASSERT_FALSE(found) << what;
    EXPECT_EQ(found.error().code, "template_corrupt") << what;
    EXPECT_NE(found.error().message.find("bad:latest"), std::string::npos) << what;
    EXPECT_NE(found.error().next.find("space template rm"), std::string::npos) << what;
    EXPECT_EQ(store_.list()->size(), 1U) << what;
    EXPECT_EQ(publish(store_, staged("bad", "latest", '2')).error().code, "template_corrupt") << what;
  };
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string(R"({"format":2})"),
                                  content.substr(0, content.size() / 2), std::string(1 << 20, '{')}) {
    std::ofstream(record) << text;
    expect_refused("release.json: " + text.substr(0, 40));
  }
  std::ofstream(record) << content;
  ASSERT_TRUE(store_.resolve("bad"));
  fs::rename(release->rootfs, dir_.path() / "away");
  expect_refused("no image");
  fs::rename(dir_.path() / "away", release->rootfs);

  put("tags/bad/latest.json", R"({"format":1,"digest":"../../../etc/passwd","kernel":"6.1-1","created_ms":1})");
  expect_refused("tag");
  EXPECT_TRUE(store_.remove("bad"));  // a damaged one can be removed by its name
  EXPECT_EQ(store_.resolve("bad").error().code, "template_not_found");
  EXPECT_TRUE(store_.resolve("good"));
}

TEST_F(StoreTest, ABuildThatStoppedHalfwayIsNotVisible) {
  // Content whose tag was never written, and a tag file that was being written aside.
  const auto made = publish(store_, staged("base", "latest", '1'));
  ASSERT_TRUE(made);
  fs::rename(store_.root() / "tags/base/latest.json", store_.root() / "tags/base/.latest.json.abcdef");
  EXPECT_EQ(store_.resolve("base").error().code, "template_not_found");
  EXPECT_TRUE(store_.list()->empty());
  EXPECT_TRUE(publish(store_, staged("base", "latest", '1')));
  // A content folder without its record.
  fs::create_directories(store_.root() / "content" / std::string(64, 'f'));
  EXPECT_EQ(store_.list()->size(), 1U);
}

}  // namespace
}  // namespace space::tmpl
