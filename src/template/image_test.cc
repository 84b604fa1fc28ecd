#include "template/image.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "template/command.h"
#include "template/test_archives.h"

namespace space::tmpl {
namespace {
namespace fs = std::filesystem;

std::vector<TestEntry> tree() {
  return {{.path = "./", .type = S_IFDIR, .mode = 0755},
          {.path = "./dev/", .type = S_IFDIR, .mode = 0755},
          {.path = "./dev/null", .type = S_IFCHR, .mode = 0666},
          {.path = "./dev/fd", .type = S_IFLNK, .mode = 0777, .link = "/proc/self/fd"},
          {.path = "./etc/", .type = S_IFDIR, .mode = 0755},
          {.path = "./etc/secret", .mode = 0640, .content = "secret\n", .uid = 3, .gid = 100'000},
          {.path = "./etc/empty"},
          {.path = "./etc/long", .type = S_IFLNK, .mode = 0777, .link = std::string(200, 'l')},
          {.path = "./etc/short", .type = S_IFLNK, .mode = 0777, .link = "secret"},
          {.path = "./etc/same", .hard_link = "./etc/secret"},
          {.path = "./etc/F\xc5\x91tan\xc3\xba.crt", .content = "name in UTF-8"},
          {.path = "./ping",
           .mode = 04755,
           .content = std::string(3'000'000, 'p'),
           .extended = {{"security.capability", std::string("\1\0\0\2\0 \0\0", 8)}}},
          {.path = "./tmp/", .type = S_IFDIR, .mode = 01777}};
}

class ImageTest : public ::testing::Test {
 protected:
  ImageTest() : dir_(*TempDir::make(fs::temp_directory_path(), "space-image-")) {}
  Result<ImageDigests> make(const std::vector<TestEntry>& entries, const std::string& name = "a") {
    std::ofstream(dir_.path() / "tar") << make_tar(entries);
    return make_image({dir_.path() / "tar", dir_.path() / name, dir_.path() / (name + ".manifest"), 64, files_});
  }
  // What debugfs says about one path.
  std::string debugfs(const std::string& request) {
    std::string out;
    EXPECT_TRUE(
        run_command({{"debugfs", "-R", request, (dir_.path() / "a").string()}, {}, [&](const std::string& line) { out += line + "\n"; }}));
    return out;
  }
  TempDir dir_;
  std::map<std::string, std::string> files_;
};

TEST_F(ImageTest, FilesLinksOwnersModesAndAttributesArrive) {
  const auto made = make(tree());
  ASSERT_TRUE(made) << describe(made.error());
  const auto checked = run_command({{"e2fsck", "-f", "-n", (dir_.path() / "a").string()}, {}, {}});
  EXPECT_TRUE(checked) << describe(checked.error());

  EXPECT_NE(debugfs("cat /etc/secret").find("secret"), std::string::npos);
  const auto secret = debugfs("stat /etc/secret");
  EXPECT_NE(secret.find("Mode:  0640"), std::string::npos) << secret;
  EXPECT_NE(secret.find("User:     3   Group: 100000"), std::string::npos) << secret;
  EXPECT_NE(secret.find("Links: 2"), std::string::npos) << secret;
  EXPECT_NE(debugfs("cat /etc/long").find(std::string(200, 'l')), std::string::npos);
  EXPECT_NE(debugfs("stat /etc/short").find("\"secret\""), std::string::npos);
  EXPECT_NE(debugfs("stat /tmp").find("Mode:  01777"), std::string::npos);
  const auto ping = debugfs("stat /ping");
  EXPECT_NE(ping.find("Mode:  04755"), std::string::npos) << ping;
  EXPECT_NE(ping.find("security.capability (8)"), std::string::npos) << ping;
  EXPECT_NE(ping.find("Size: 3000000"), std::string::npos) << ping;
  EXPECT_EQ(debugfs("ls /dev").find("null"), std::string::npos);
}

TEST_F(ImageTest, TheManifestSaysWhatTheTreeIs) {
  ASSERT_TRUE(make(tree()));
  const auto manifest = *read_file(dir_.path() / "a.manifest", 1 << 20);
  EXPECT_NE(manifest.find("/etc/secret f 0640 3:100000 7 "), std::string::npos) << manifest;
  EXPECT_NE(manifest.find("/etc/same = /etc/secret\n"), std::string::npos);
  EXPECT_NE(manifest.find("/etc/short l 0777 0:0 secret\n"), std::string::npos);
  EXPECT_NE(manifest.find(" security.capability=AQAAAgAgAAA="), std::string::npos);
  EXPECT_EQ(manifest.find("/dev/null"), std::string::npos);
}

TEST_F(ImageTest, TheBuildsOwnFilesStandInPlaceOfTheArchives) {
  const auto without = make(tree());
  files_ = {{"etc/secret2", "two"}, {"etc/space/deep/own.json", "{}\n"}, {"etc/empty", "not empty"}};
  const auto with = make(tree());
  ASSERT_TRUE(without && with) << describe(with.error());
  EXPECT_NE(without->tree, with->tree);
  EXPECT_NE(debugfs("cat /etc/space/deep/own.json").find("{}"), std::string::npos);
  EXPECT_NE(debugfs("cat /etc/empty").find("not empty"), std::string::npos);
  EXPECT_TRUE(run_command({{"e2fsck", "-f", "-n", (dir_.path() / "a").string()}, {}, {}}));
  const auto manifest = *read_file(dir_.path() / "a.manifest", 1 << 20);
  EXPECT_NE(manifest.find("/etc/space/deep d 0755 0:0\n"), std::string::npos) << manifest;
  EXPECT_EQ(with->tree, make(tree(), "b")->tree);
}

TEST_F(ImageTest, TheSameTreeGivesTheSameBytes) {
  const auto one = make(tree(), "a");
  const auto two = make(tree(), "b");
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->tree, two->tree);
  EXPECT_EQ(one->image, two->image);
  EXPECT_TRUE(run_command({{"cmp", (dir_.path() / "a").string(), (dir_.path() / "b").string()}, {}, {}}));
}

TEST_F(ImageTest, EveryChangeShowsInTheDigest) {
  const auto first = make(tree());
  ASSERT_TRUE(first);
  auto change = [&](auto edit) {
    auto entries = tree();
    edit(entries);
    const auto made = make(entries);
    EXPECT_TRUE(made);
    return made->tree != first->tree;
  };
  EXPECT_TRUE(change([](auto& e) { e[5].content = "Secret\n"; }));
  EXPECT_TRUE(change([](auto& e) { e[5].mode = 0644; }));
  EXPECT_TRUE(change([](auto& e) { e[5].uid = 4; }));
  EXPECT_TRUE(change([](auto& e) { e[8].link = "empty"; }));
  EXPECT_TRUE(change([](auto& e) { e[11].extended.clear(); }));
  EXPECT_TRUE(change([](auto& e) { e.pop_back(); }));
  EXPECT_FALSE(change([](auto& e) { e[5].mtime += 1; }));  // a date is not content
}

TEST_F(ImageTest, ManyNamesInOneFolder) {
  auto entries = tree();
  for (int i = 0; i < 2000; ++i) entries.push_back({.path = "./tmp/" + std::string(40, 'n') + std::to_string(i), .content = "x"});
  ASSERT_TRUE(make(entries));
  EXPECT_TRUE(run_command({{"e2fsck", "-f", "-n", (dir_.path() / "a").string()}, {}, {}}));
}

TEST_F(ImageTest, WhatDoesNotBelongIntoAnImageIsNamed) {
  const std::pair<TestEntry, std::string> cases[] = {{{.path = "../etc/passwd", .content = "x"}, "../etc/passwd"},
                                                     {{.path = "./etc/../../x", .content = "x"}, "leaves the root"},
                                                     {{.path = "./nowhere/file", .content = "x"}, "nowhere/file"},
                                                     {{.path = "./etc/short/file", .content = "x"}, "etc/short/file"},
                                                     {{.path = "./etc/secret", .content = "again"}, "etc/secret"},
                                                     {{.path = "./etc/pipe", .type = S_IFIFO}, "etc/pipe"},
                                                     {{.path = "./sda", .type = S_IFBLK}, "sda"},
                                                     {{.path = "./link", .hard_link = "./nothing"}, "nothing"}};
  for (const auto& [entry, words] : cases) {
    auto entries = tree();
    entries.push_back(entry);
    const auto made = make(entries);
    ASSERT_FALSE(made) << entry.path;
    EXPECT_EQ(made.error().code, "template_image");
    EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
  }
}

TEST_F(ImageTest, AFileSystemThatIsTooSmallSaysSo) {
  auto entries = tree();
  entries.push_back({.path = "./big", .content = std::string(60 << 20, 'b')});
  const auto made = make(entries);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::insufficient_storage);
  EXPECT_NE(made.error().next.find("disk_mib"), std::string::npos);
}

}  // namespace
}  // namespace space::tmpl
