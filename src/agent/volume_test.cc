// A volume's folder as E2B's content API sees it: what is inside, and that nothing leads out.
#include "agent/volume.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/encoding.h"
#include "base/file.h"

namespace space::agent {
namespace {

namespace fs = std::filesystem;

class VolumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "gives files to others, which needs root";
    folder_ = dir_.path() / "volume";
    volume_.emplace(Volume::open(folder_.string()).value());
  }
  std::string write(const std::string& path, std::string_view content, const Ownership& of = {}, bool parents = false) {
    auto writing = volume_->write(path, of, parents);
    if (!writing) return writing.error().code;
    if (auto written = writing->write(as_bytes(content)); !written) return written.error().code;
    auto done = writing->commit();
    return done ? "" : done.error().code;
  }
  std::string read(const std::string& path) {
    auto opened = volume_->read(path);
    if (!opened) return "error: " + opened.error().code;
    return read_fd(opened->file, 1 << 20).value();
  }
  template <class T>
  static std::string code(const Result<T>& result) {
    return result ? "" : result.error().code;
  }
  TempDir dir_ = TempDir::make("/tmp", "space-volume-").value();
  fs::path folder_;
  std::optional<Volume> volume_;
};

TEST(VolumePath, IsAbsoluteAndLeadsNowhereElse) {
  EXPECT_EQ(volume_path("/a//b/").value(), "/a/b");
  EXPECT_EQ(volume_path("/").value(), "/");
  EXPECT_EQ(volume_path("//").value(), "/");
  for (const std::string wrong : {"", "a", "./a", "/..", "/a/../b", "/a/.", "/a/..", "../a"}) EXPECT_FALSE(volume_path(wrong)) << wrong;
  EXPECT_FALSE(volume_path(std::string_view("/a\0b", 4)));
  EXPECT_FALSE(volume_path("/" + std::string(5000, 'a')));
}

TEST_F(VolumeTest, EverybodyMayWriteToIt) {
  EXPECT_EQ(volume_->stat("/")->status.st_mode & 07777, 0777u);
  EXPECT_EQ(code(Volume::open(folder_.string())), "");  // and it is there the next time
}

TEST_F(VolumeTest, FilesComeBackWithOwnerAndMode) {
  EXPECT_EQ(write("/f", "one", {7, 8, 0640}), "");
  EXPECT_EQ(read("/f"), "one");
  Entry entry = volume_->stat("/f").value();
  EXPECT_EQ(std::tuple(entry.status.st_uid, entry.status.st_gid, entry.status.st_mode & 07777, entry.path),
            std::tuple(7u, 8u, 0640u, std::string("/f")));
  EXPECT_EQ(write("/f", "two"), "");  // keeps what is not said
  EXPECT_EQ(volume_->stat("/f")->status.st_uid, 7u);
  EXPECT_EQ(write("/g", ""), "");
  EXPECT_EQ(volume_->stat("/g")->status.st_uid, kVolumeUser);
  EXPECT_EQ(write("/no/such/folder", "x"), "no_such_file");
  EXPECT_EQ(write("/deep/er/file", "x", {}, true), "");
  EXPECT_EQ(volume_->stat("/deep")->status.st_uid, kVolumeUser);
  EXPECT_EQ(code(volume_->change("/f", {1, std::nullopt, 0400})), "");
  entry = volume_->stat("/f").value();
  EXPECT_EQ(std::tuple(entry.status.st_uid, entry.status.st_gid, entry.status.st_mode & 07777), std::tuple(1u, 8u, 0400u));
  EXPECT_EQ(code(volume_->change("/none", {})), "no_such_file");
}

TEST_F(VolumeTest, FoldersAreMadeListedAndRemoved) {
  EXPECT_EQ(code(volume_->make_folder("/d", {}, false)), "");
  EXPECT_EQ(code(volume_->make_folder("/d", {}, false)), "already_exists");
  EXPECT_EQ(code(volume_->make_folder("/d", {}, true)), "");
  EXPECT_EQ(code(volume_->make_folder("/x/y", {}, false)), "no_such_file");
  EXPECT_EQ(code(volume_->make_folder("/x/y", {std::nullopt, std::nullopt, 0700}, true)), "");
  EXPECT_EQ(volume_->stat("/x/y")->status.st_mode & 07777, 0700u);
  EXPECT_EQ(write("/x/f", "1"), "");
  EXPECT_EQ(code(volume_->make_folder("/x/f", {}, true)), "already_exists");
  EXPECT_EQ(code(volume_->make_folder("/x/f/g", {}, true)), "no_such_file");
  std::vector<std::string> paths;
  const std::vector<Entry> listed = volume_->list("/", 2).value();
  for (const Entry& entry : listed) paths.push_back(entry.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"/d", "/x", "/x/f", "/x/y"}));
  ASSERT_EQ(volume_->list("/x", 1)->size(), 2u);
  EXPECT_EQ(volume_->list("/x", 1)->at(0).path, "/x/f");
  EXPECT_EQ(code(volume_->list("/x/f", 1)), "not_a_directory");
  EXPECT_EQ(code(volume_->list("/none", 1)), "no_such_file");
  EXPECT_EQ(code(volume_->remove("/")), "invalid_path");
  EXPECT_EQ(code(volume_->remove("/x")), "");
  EXPECT_EQ(code(volume_->remove("/x")), "no_such_file");
}

TEST_F(VolumeTest, NoSymlinkLeadsOut) {
  std::ofstream(dir_.path() / "secret") << "outside";
  ASSERT_EQ(::symlink((dir_.path() / "secret").c_str(), (folder_ / "absolute").c_str()), 0);
  ASSERT_EQ(::symlink("../secret", (folder_ / "relative").c_str()), 0);
  ASSERT_EQ(::symlink("..", (folder_ / "up").c_str()), 0);
  ASSERT_EQ(::symlink("/proc/self/root", (folder_ / "magic").c_str()), 0);
  for (const char* path : {"/absolute", "/relative", "/up/secret", "/up/up/secret", "/magic/etc/passwd"})
    EXPECT_EQ(read(path).substr(0, 6), "error:") << path;
  // "/" at the end of a link is the volume itself, as ".." above it is.
  EXPECT_EQ(write("/relative", "inside"), "");
  EXPECT_EQ(read("/secret"), "inside");
  EXPECT_EQ(read("/up/secret"), "inside");
  EXPECT_EQ(read_file(dir_.path() / "secret", 100).value(), "outside");
  EXPECT_EQ(code(volume_->remove("/up")), "");  // the link, not what it names
  EXPECT_TRUE(fs::exists(folder_ / "secret"));
  EXPECT_EQ(volume_->stat("/absolute")->target, (dir_.path() / "secret").string());
  ASSERT_EQ(::symlink("loop", (folder_ / "loop").c_str()), 0);
  EXPECT_EQ(write("/loop", "x"), "too_many_links");
}

TEST_F(VolumeTest, ErrorsNameTheVolumesPaths) {
  EXPECT_EQ(code(volume_->make_folder("/d", {}, false)), "");
  const auto refused = volume_->read("/d");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "is_a_directory");
  EXPECT_EQ(refused.error().message.find("/proc"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace space::agent
