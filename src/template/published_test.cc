#include "template/published.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/file.h"

namespace space::tmpl {
namespace {

struct PublishedTest : ::testing::Test {
  PublishedTest() {
    const std::string parent(64, 'a');
    write("templates/content/" + parent + "/rootfs.ext4", "rootfs");
    write("templates/kernels/6.1/vmlinux", "kernel");
    write("templates/initramfs/6.1/x.cpio", "initramfs");
    std::filesystem::create_symlink("x.cpio", dir.path() / "templates/initramfs/6.1/current");
    below.digest = "sha256:" + parent;
    below.kernel = dir.path() / "templates/kernels/6.1/vmlinux";
  }
  void write(const std::string& name, std::string_view text) {
    ASSERT_TRUE(make_directories((dir.path() / name).parent_path()));
    ASSERT_TRUE(write_file_durable(dir.path() / name, text));
  }
  PublishedStore::Order order(const std::string& tag, std::string_view disk) {
    PublishedStore::Order out;
    out.name = "mine";
    out.tag = tag;
    out.config.start = "serve";
    out.parent = below;
    out.staged = published.stage_folder().value();
    EXPECT_TRUE(write_file_durable(out.staged / "disk.qcow2", disk));
    out.created_ms = 7;
    return out;
  }

  TempDir dir = TempDir::make("/tmp", "space-published-test").value();
  PublishedStore published{dir.path() / "node" / "templates"};
  TemplateStore store{dir.path() / "templates", dir.path() / "node" / "templates"};
  Release below;
};

TEST_F(PublishedTest, HasNoNameBeforeItIsGivenOne) {
  const auto placed = published.place(store, order("1", "disk"));
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(store.resolve("mine:1").error().code, "template_not_found");
  ASSERT_TRUE(published.name(*placed, "operation-1"));
  const auto found = store.resolve("mine:1").value();
  EXPECT_EQ(found.digest, placed->digest);
  EXPECT_EQ(found.stands_on, below.digest);
  EXPECT_EQ(found.start, "serve");
  EXPECT_EQ(found.disk_bytes, 4u);
  EXPECT_EQ(store.resolve(found.digest)->tag, "1");
  EXPECT_EQ(store.list()->size(), 1u);
  EXPECT_EQ(published.tag("mine", "1")->operation, "operation-1");
}

TEST_F(PublishedTest, IsNeverPublishedTwiceUnderOneName) {
  ASSERT_TRUE(published.name(published.place(store, order("1", "disk")).value(), "a"));
  EXPECT_EQ(published.place(store, order("1", "disk")).error().code, "template_tag_exists");
  EXPECT_EQ(published.place(store, order("1", "other")).error().code, "template_tag_exists");
}

TEST_F(PublishedTest, AKillLeavesNothingBehindTheNextStart) {
  const auto named = published.place(store, order("1", "one")).value();
  ASSERT_TRUE(published.name(named, "a"));
  const auto unnamed = published.place(store, order("2", "two")).value();
  (void)order("3", "three");  // staged alone
  ASSERT_TRUE(published.sweep());
  EXPECT_TRUE(std::filesystem::exists(named.disk));
  EXPECT_FALSE(std::filesystem::exists(unnamed.disk));
  const auto names = list_directory(published.root()).value();
  for (const auto& name : names) EXPECT_FALSE(name.starts_with("staging-")) << name;
}

TEST_F(PublishedTest, GoesWithItsLastName) {
  const auto placed = published.place(store, order("1", "disk")).value();
  ASSERT_TRUE(published.name(placed, "a"));
  Release other = placed;
  other.tag = "2";
  ASSERT_TRUE(published.name(other, "b"));
  ASSERT_TRUE(store.remove("mine:1"));
  EXPECT_TRUE(std::filesystem::exists(placed.disk));
  ASSERT_TRUE(store.remove("mine:2"));
  EXPECT_FALSE(std::filesystem::exists(placed.disk));
}

TEST_F(PublishedTest, ANamedThingThatIsDamagedSaysSo) {
  const auto placed = published.place(store, order("1", "disk")).value();
  ASSERT_TRUE(published.name(placed, "a"));
  std::filesystem::remove(placed.disk);
  EXPECT_EQ(store.resolve("mine:1").error().code, "template_corrupt");
}

}  // namespace
}  // namespace space::tmpl
