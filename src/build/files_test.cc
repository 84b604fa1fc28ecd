#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"
#include "build/aliases.h"
#include "build/layers.h"
#include "build/record.h"
#include "build/uploads.h"

namespace space::build {
namespace {

struct BuildFilesTest : ::testing::Test {
  TempDir dir = TempDir::make("/tmp", "space-build-test").value();
};

std::string digest_of(std::string_view text) { return hex_encode(sha256(text)); }

TEST_F(BuildFilesTest, AnUploadIsThereWholeOrNotAtAll) {
  const Uploads uploads(dir.path(), {1000, 1500, 1000});
  {
    auto lost = uploads.begin("acme").value();
    ASSERT_TRUE(lost.write(as_bytes("half")));
  }
  EXPECT_TRUE(list_directory(dir.path() / "acme" / "content").value().empty());
  auto whole = uploads.begin("acme").value();
  ASSERT_TRUE(whole.write(as_bytes("hello")));
  ASSERT_TRUE(whole.commit(std::string(64, 'e'), false));
  EXPECT_EQ(uploads.find("acme", std::string(64, 'e')).value(), digest_of("hello"));
  EXPECT_EQ(uploads.find("other", std::string(64, 'e')).value(), std::nullopt);
  EXPECT_EQ(uploads.find("acme", "../../etc/passwd").value(), std::nullopt);
  EXPECT_EQ(uploads.open("acme", digest_of("hello"))->bytes, 5u);
}

TEST_F(BuildFilesTest, AnUploadsNameIsThatOfItsBytes) {
  const Uploads uploads(dir.path());
  auto wrong = uploads.begin("acme").value();
  ASSERT_TRUE(wrong.write(as_bytes("hello")));
  EXPECT_EQ(wrong.commit(digest_of("other"), true).error().code, "upload_digest");
  auto right = uploads.begin("acme").value();
  ASSERT_TRUE(right.write(as_bytes("hello")));
  EXPECT_TRUE(right.commit(digest_of("hello"), true));
}

TEST_F(BuildFilesTest, UploadsAreBoundedAndOldOnesGo) {
  const Uploads uploads(dir.path(), {1000, 1500, 1000});
  auto one = uploads.begin("acme").value();
  EXPECT_EQ(one.write(as_bytes(std::string(1001, 'x'))).error().code, "upload_too_large");
  auto two = uploads.begin("acme").value();
  ASSERT_TRUE(two.write(as_bytes(std::string(900, 'x'))));
  ASSERT_TRUE(two.commit(std::string(64, '1'), false));
  auto three = uploads.begin("acme").value();
  EXPECT_EQ(three.write(as_bytes(std::string(900, 'y'))).error().code, "uploads_full");
  ASSERT_TRUE(uploads.sweep(system_clock().wall_ms()));
  EXPECT_TRUE(uploads.find("acme", std::string(64, '1')).value());
  ASSERT_TRUE(uploads.sweep(system_clock().wall_ms() + 3000));
  EXPECT_FALSE(uploads.find("acme", std::string(64, '1')).value());
}

TEST_F(BuildFilesTest, ARecordComesBackAndAnUnreadableOneIsLeftOut) {
  const BuildFiles files(dir.path());
  Build build;
  build.id = new_id();
  build.tenant = "acme";
  build.name = "x";
  build.tag = "1";
  build.state = BuildState::failed;
  build.error = Error{ErrorKind::conflict, "a_code", "a message", "a next"};
  build.failed_step = "3";
  build.created_ms = 5;
  ASSERT_TRUE(files.save(build));
  ASSERT_TRUE(write_file_durable(dir.path() / (new_id() + ".json"), "{"));
  const auto all = files.all().value();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(json::serialize(write_build(all[0])), json::serialize(write_build(build)));
  ASSERT_TRUE(files.append(build.id, {{1, "info", "1", "one"}, {2, "warn", "", "two"}}));
  ASSERT_TRUE(files.append(build.id, {{3, "info", "2", "three"}}));
  const auto log = files.log(build.id).value();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[2].message, "three");
  ASSERT_TRUE(files.remove(build.id));
  EXPECT_TRUE(files.log(build.id).value().empty());
}

// What is taken for a build's own is hidden, and removed when nobody needs it.
TEST(BuildNames, PeopleMayCallTheirCheckpointsAlike) {
  EXPECT_TRUE(is_layer(kLayerName + std::string(16, 'a')));
  for (const std::string& name : {"build-" + new_id(), "publish-" + new_id(), kLayerName + std::string("0123456789abcdef")})
    EXPECT_TRUE(is_of_builds(name)) << name;
  for (const char* name :
       {"build-layer-2", "build-layer-", "build-layer-0123456789abcdeg", "build-cache", "publish-me", "build-", "", "nightly"}) {
    EXPECT_FALSE(is_layer(name)) << name;
    EXPECT_FALSE(is_of_builds(name)) << name;
  }
}

TEST_F(BuildFilesTest, LayersUsedLongestAgoGo) {
  Layers layers(dir.path() / "layers");
  for (int i = 0; i < 5; ++i) layers.put({std::string(63, 'k') + std::to_string(i), "acme", new_id(), 1, i});
  layers.put({std::string(64, 'o'), "other", new_id(), 1, 0});
  layers.use("acme", std::string(63, 'k') + "0", 100);
  const auto goes = layers.surplus(3);
  ASSERT_EQ(goes.size(), 2u);
  EXPECT_EQ(goes[0].used_ms, 2);
  EXPECT_EQ(goes[1].used_ms, 1);
  ASSERT_TRUE(Layers::save(layers.file(), layers.text()));
  Layers again(dir.path() / "layers");
  ASSERT_TRUE(again.load());
  EXPECT_EQ(again.text(), layers.text());
  EXPECT_EQ(again.find("other", std::string(63, 'k') + "1"), nullptr);
}

TEST_F(BuildFilesTest, AliasesMove) {
  Aliases aliases(dir.path() / "aliases");
  aliases.set("x", "default", {"x:b-1", "one", 1});
  aliases.set("x", "v1", {"x:b-1", "one", 1});
  aliases.set("x", "default", {"x:b-2", "two", 2});
  ASSERT_TRUE(Aliases::save(aliases.file(), aliases.text()));
  Aliases again(aliases.file());
  ASSERT_TRUE(again.load());
  EXPECT_EQ(again.find("x", "default")->reference, "x:b-2");
  EXPECT_EQ(again.find("x", "v1")->reference, "x:b-1");
  EXPECT_EQ(again.find("x", "v2"), std::nullopt);
  EXPECT_EQ(again.name_of("x:b-1"), "x");
  again.drop("x", "default");
  again.drop("x", "v1");
  EXPECT_EQ(again.tags("x"), nullptr);
}

}  // namespace
}  // namespace space::build
