// Volumes as a guest's programs see them: this process is the guest with the mount and the volume behind it, and the kernel between is
// this machine's. In a mount namespace of its own, so that nothing stays behind.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "agent/volume.h"
#include "agent/volume_mounts.h"
#include "agent/volume_service.h"
#include "base/file.h"

namespace space::agent {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string content_of(const fs::path& path) { return read_file(path, 64 << 20).value_or("(nothing)"); }

template <class F>
bool soon(F condition) {
  for (int i = 0; i < 100; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(50));
  }
  return false;
}

class FuseTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    can_ = ::geteuid() == 0 && ::access("/dev/fuse", R_OK | W_OK) == 0 && ::unshare(CLONE_NEWNS) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }
  void SetUp() override {
    if (!can_) GTEST_SKIP() << "needs root and /dev/fuse";
    folder_ = dir_.path() / "volume";
    ASSERT_TRUE(Volume::open(folder_.string()));
    if (!FuseNodes::open(folder_.string(), key())) GTEST_SKIP() << "needs /tmp on ext4";
    service_.emplace(folder_.string(), key());
    a_ = dir_.path() / "a";
    b_ = dir_.path() / "b";
    ASSERT_TRUE(mounts_.set({a_.string(), b_.string()}));
    connect(a_);
    connect(b_);
  }
  void TearDown() override { (void)mounts_.set({}); }
  std::string key() const { return (dir_.path() / "key").string(); }

  // As the host does it.
  void connect(const fs::path& path) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    wire_ = std::make_shared<VolumeWire>(Fd(ends[1]));
    auto mount = mounts_.find(path.string());
    ASSERT_TRUE(service_->serve(wire_, "sandbox." + mount->id()));
    mount->use(std::make_shared<VolumeWire>(Fd(ends[0])));
  }

  static inline bool can_ = false;
  TempDir dir_ = TempDir::make("/tmp", "space-fuse-").value();
  fs::path folder_, a_, b_;
  std::optional<VolumeService> service_;
  std::shared_ptr<VolumeWire> wire_;  // the last one
  VolumeMounts mounts_;
};

TEST_F(FuseTest, FilesAreThoseOfTheVolume) {
  std::string large;
  std::mt19937 random(1);
  while (large.size() < (5u << 20) + 17) large.push_back(static_cast<char>(random()));
  std::ofstream(a_ / "large") << large;
  EXPECT_TRUE(content_of(folder_ / "large") == large);
  EXPECT_TRUE(content_of(b_ / "large") == large);
  fs::create_directories(a_ / "one/two");
  fs::rename(a_ / "large", a_ / "one/two/three");
  EXPECT_EQ(fs::file_size(folder_ / "one/two/three"), large.size());
  fs::resize_file(a_ / "one/two/three", 5);
  EXPECT_EQ(content_of(a_ / "one/two/three"), large.substr(0, 5));
  std::ofstream(a_ / "one/two/three", std::ios::app) << "more";
  EXPECT_EQ(content_of(folder_ / "one/two/three"), large.substr(0, 5) + "more");
  fs::create_symlink("two/three", a_ / "one/link");
  EXPECT_EQ(fs::read_symlink(a_ / "one/link"), "two/three");
  EXPECT_EQ(content_of(a_ / "one/link"), large.substr(0, 5) + "more");
  fs::create_hard_link(a_ / "one/two/three", a_ / "again");
  EXPECT_EQ(fs::hard_link_count(a_ / "again"), 2u);
  EXPECT_THROW(fs::remove(a_ / "one"), fs::filesystem_error);
  EXPECT_EQ(fs::remove_all(a_ / "one"), 4u);
  EXPECT_FALSE(fs::exists(folder_ / "one"));
  struct statvfs space = {};
  ASSERT_EQ(::statvfs(a_.c_str(), &space), 0);
  EXPECT_GT(space.f_blocks, 0u);
}

TEST_F(FuseTest, AFolderOfThousandsIsListedWhole) {
  for (int i = 0; i < 3000; ++i) std::ofstream(folder_ / fmt::format("a-name-of-some-length-{}", i));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(a_)) names.insert(entry.path().filename().string());
  EXPECT_EQ(names.size(), 3000u);
}

TEST_F(FuseTest, OwnersModesAndTimesAreKept) {
  const auto status = [](const fs::path& path) {
    struct stat st = {};
    EXPECT_EQ(::stat(path.c_str(), &st), 0);
    return st;
  };
  const std::string mine = a_ / "mine", folder = a_ / "folder", roots = a_ / "roots";
  std::ofstream(roots) << "x";
  ASSERT_EQ(::chmod(roots.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // somebody who is not root
    if (::setgid(1234) != 0 || ::setuid(1234) != 0) ::_exit(1);
    ::umask(027);
    const int fd = ::open(mine.c_str(), O_CREAT | O_WRONLY, 0666);
    if (fd < 0 || ::write(fd, "x", 1) != 1 || ::mkdir(folder.c_str(), 0777) != 0) ::_exit(2);
    if (::open(roots.c_str(), O_RDWR) >= 0 || errno != EACCES) ::_exit(3);
    ::_exit(0);
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(WEXITSTATUS(ended), 0);
  EXPECT_EQ(std::tuple(status(folder_ / "mine").st_uid, status(folder_ / "mine").st_gid, status(folder_ / "mine").st_mode & 07777),
            std::tuple(1234u, 1234u, 0640u));
  EXPECT_EQ(std::tuple(status(a_ / "folder").st_uid, status(a_ / "folder").st_mode & 07777), std::tuple(1234u, 0750u));
  EXPECT_EQ(::chmod((a_ / "mine").c_str(), 0600), 0);
  EXPECT_EQ(::chown((a_ / "mine").c_str(), 5, 6), 0);
  const timespec times[2] = {{1000, 5}, {2000, 7}};
  EXPECT_EQ(::utimensat(AT_FDCWD, (a_ / "mine").c_str(), times, 0), 0);
  const struct stat now = status(folder_ / "mine");
  EXPECT_EQ(std::tuple(now.st_uid, now.st_gid, now.st_mode & 07777, now.st_mtim.tv_sec, now.st_mtim.tv_nsec, now.st_atim.tv_sec),
            std::tuple(5u, 6u, 0600u, 2000L, 7L, 1000L));
}

TEST_F(FuseTest, OthersSeeWhatIsWrittenAtOnceOrASecondLater) {
  std::ofstream(a_ / "f") << "one";
  EXPECT_EQ(content_of(b_ / "f"), "one");
  std::ofstream(a_ / "f") << "another";
  EXPECT_TRUE(soon([&] { return content_of(b_ / "f") == "another"; }));
  fs::remove(a_ / "f");
  EXPECT_TRUE(soon([&] { return !fs::exists(b_ / "f"); }));
}

TEST_F(FuseTest, AFileThatIsRemovedIsReadOnByWhoHasItOpen) {
  std::ofstream(a_ / "f") << "still here";
  const Fd open(::open((a_ / "f").c_str(), O_RDWR));
  ASSERT_TRUE(open);
  ASSERT_EQ(::unlink((a_ / "f").c_str()), 0);
  EXPECT_EQ(::pwrite(open.get(), "STILL", 5, 0), 5);
  char text[32] = {};
  EXPECT_EQ(::pread(open.get(), text, sizeof text, 0), 10);
  EXPECT_STREQ(text, "STILL here");
}

TEST_F(FuseTest, AMountWaitsForANewWireAndGoesOn) {
  std::ofstream(b_ / "f") << "before";
  const Fd open(::open((b_ / "f").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(open);
  wire_->close();
  std::atomic<int> made = -1;
  std::thread program([&] {
    (void)!::pwrite(open.get(), "AFTER!", 6, 0);
    made = ::mkdir((b_ / "made").c_str(), 0755);
  });
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(made, -1);
  connect(b_);
  program.join();
  EXPECT_EQ(made, 0);
  EXPECT_EQ(content_of(folder_ / "f"), "AFTER!");
  EXPECT_TRUE(fs::is_directory(folder_ / "made"));
}

TEST_F(FuseTest, WhatIsUnmountedFailsAndIsMountedAnew) {
  const Fd open(::open((a_ / "f").c_str(), O_CREAT | O_RDWR, 0644));
  ASSERT_TRUE(mounts_.set({b_.string()}));
  EXPECT_FALSE(mounts_.find(a_.string()));
  EXPECT_EQ(::pwrite(open.get(), "x", 1, 0), -1);
  EXPECT_TRUE(fs::is_empty(a_));
  ASSERT_EQ(::umount2(b_.c_str(), MNT_DETACH | MNT_FORCE), 0);  // somebody in the guest
  EXPECT_TRUE(soon([&] { return mounts_.find(b_.string())->over(); }));
  ASSERT_TRUE(mounts_.set({b_.string()}));
  connect(b_);
  EXPECT_TRUE(fs::exists(b_ / "f"));
}

// Messages by hand, as a guest whose kernel is somebody's own may send them.
class FuseMessages : public FuseTest {
 protected:
  void SetUp() override {
    if (!can_) GTEST_SKIP() << "needs root";
    folder_ = dir_.path() / "volume";
    ASSERT_TRUE(Volume::open(folder_.string()));
    auto opened = FuseServer::open(folder_.string(), key());
    if (!opened) GTEST_SKIP() << "needs /tmp on ext4";
    server_ = std::move(*opened);
  }
  std::vector<std::byte> ask(std::uint32_t opcode, std::uint64_t node, std::string_view body, std::uint64_t number = 2) {
    fuse_in_header head{};
    head.len = static_cast<std::uint32_t>(sizeof head + body.size());
    head.opcode = opcode;
    head.unique = number;
    head.nodeid = node;
    std::string message(reinterpret_cast<const char*>(&head), sizeof head);
    message += body;
    return server_->serve(*server_->client("one"), std::as_bytes(std::span(message)));
  }
  static int error_of(const std::vector<std::byte>& answer) {
    fuse_out_header head{};
    if (answer.size() < sizeof head) return -1000;
    std::memcpy(&head, answer.data(), sizeof head);
    EXPECT_EQ(head.len, answer.size());
    return head.error;
  }
  std::unique_ptr<FuseServer> server_;
};

TEST_F(FuseMessages, WhatComesAgainWhileItIsDoneIsDoneOnce) {
  for (std::uint64_t number = 2; number < 400; number += 2) {
    const std::string called = fmt::format("d{}", number);
    std::string body(sizeof(fuse_mkdir_in), '\0');
    body.append(called).push_back('\0');
    std::atomic<int> ready = 0;
    int errors[2] = {-1, -1};
    const auto again = [&](int i) {
      for (++ready; ready < 2;) continue;
      errors[i] = error_of(ask(FUSE_MKDIR, FUSE_ROOT_ID, body, number));
    };
    std::thread other(again, 1);
    again(0);
    other.join();
    ASSERT_EQ(std::pair(errors[0], errors[1]), std::pair(0, 0)) << called;
  }
}

TEST_F(FuseMessages, ANewWireOfAMountEndsTheOneBefore) {
  VolumeService service(folder_.string(), key());
  int old_ends[2], new_ends[2], others[2];
  for (int* ends : {old_ends, others, new_ends}) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ASSERT_TRUE(service.serve(std::make_shared<VolumeWire>(Fd(ends[1])), ends == others ? "sandbox.b" : "sandbox.a"));
  }
  const Fd first(old_ends[0]), second(new_ends[0]), other(others[0]);
  const auto answers = [&](const Fd& end) {
    struct {
      fuse_in_header head;
      fuse_getattr_in in;
    } asked{};
    asked.head = {sizeof asked, FUSE_GETATTR, 2, FUSE_ROOT_ID, 0, 0, 0, 0, 0};
    (void)!::send(end.get(), &asked, sizeof asked, MSG_NOSIGNAL);
    char room[256];
    return ::recv(end.get(), room, sizeof room, 0) > 0;
  };
  EXPECT_FALSE(answers(first));
  EXPECT_TRUE(answers(second));
  EXPECT_TRUE(answers(other));
}

TEST_F(FuseMessages, WhatIsOutsideHasNoNumber) {
  std::ofstream(dir_.path() / "outside") << "x";
  struct stat st = {};
  ASSERT_EQ(::stat((dir_.path() / "outside").c_str(), &st), 0);
  const std::string body(sizeof(fuse_getattr_in), '\0');
  EXPECT_EQ(error_of(ask(FUSE_GETATTR, st.st_ino, body)), -ESTALE);
  EXPECT_EQ(error_of(ask(FUSE_GETATTR, st.st_ino | 1ULL << 32, body)), -ESTALE);
  EXPECT_EQ(error_of(ask(FUSE_GETATTR, FUSE_ROOT_ID, body)), 0);
  for (const std::string_view name : {"..", ".", "a/b", "", "../outside"})
    EXPECT_EQ(error_of(ask(FUSE_LOOKUP, FUSE_ROOT_ID, std::string(name) + '\0')), -EINVAL) << name;
  EXPECT_EQ(error_of(ask(FUSE_LOOKUP, FUSE_ROOT_ID, "without an end")), -EINVAL);
}

TEST_F(FuseMessages, NumbersMeanTheSameAfterARestart) {
  std::ofstream(folder_ / "f") << "x";
  const auto number = [&] {
    fuse_entry_out out{};
    const auto answer = ask(FUSE_LOOKUP, FUSE_ROOT_ID, std::string("f") + '\0');
    if (answer.size() >= sizeof(fuse_out_header) + sizeof out) std::memcpy(&out, answer.data() + sizeof(fuse_out_header), sizeof out);
    return out.nodeid;
  };
  const std::uint64_t before = number();
  server_ = FuseServer::open(folder_.string(), key()).value();
  EXPECT_EQ(number(), before);
  EXPECT_GT(before, 0xFFFFFFFFU);
}

TEST_F(FuseMessages, WhatIsDoneOnceIsAnsweredTwice) {
  fuse_mkdir_in in{};
  in.mode = 0755;
  const std::string body = std::string(reinterpret_cast<const char*>(&in), sizeof in) + "d" + '\0';
  EXPECT_EQ(error_of(ask(FUSE_MKDIR, FUSE_ROOT_ID, body, 40)), 0);
  EXPECT_EQ(error_of(ask(FUSE_MKDIR, FUSE_ROOT_ID, body, 40)), 0);  // its answer was lost
  EXPECT_EQ(error_of(ask(FUSE_MKDIR, FUSE_ROOT_ID, body, 42)), -EEXIST);
}

TEST_F(FuseMessages, NothingThatIsCutOrMadeUpDoesHarm) {
  std::mt19937 random(7);
  for (std::uint32_t opcode = 0; opcode < 64; ++opcode)
    for (std::size_t size = 0; size < 140; ++size) {
      std::string body(size, '\0');
      (void)ask(opcode, FUSE_ROOT_ID, body);
      for (char& c : body) c = static_cast<char>(random() % 128);
      (void)ask(opcode, FUSE_ROOT_ID, body, size * 2);
      (void)ask(opcode, ~std::uint64_t{0}, body);
    }
  EXPECT_TRUE(server_->serve(*server_->client("one"), {}).empty());
  EXPECT_EQ(error_of(ask(FUSE_STATFS, FUSE_ROOT_ID, "")), 0);
}

}  // namespace
}  // namespace space::agent
