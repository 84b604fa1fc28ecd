// Landlock against the kernel, each time in a process of its own: there is no way out of it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

#include "base/file.h"
#include "confine/landlock.h"

namespace space::confine {
namespace {

constexpr int kNotEntered = 99;

int errno_of(long result) { return result >= 0 ? 0 : errno; }

class LandlockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (landlock_version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
    for (const char* name : {"own", "other", "closed"}) {
      ASSERT_TRUE(make_directories(path(name)));
      ASSERT_TRUE(write_file_durable(path(name) / "file", "text"));
    }
  }
  std::filesystem::path path(const char* name) const { return folder_.path() / name; }
  std::vector<Allowed> paths() const { return {{path("own"), kKeep}, {path("other"), kKeep}, {path("closed") / "nowhere", kRead, false}}; }
  // What `work` gives within `allowed`, and without (the control).
  std::pair<int, int> both(const std::function<int()>& work, Tcp tcp = Tcp::none) const {
    return {run(true, work, tcp), run(false, work, tcp)};
  }
  int run(bool enter, const std::function<int()>& work, Tcp tcp) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (enter && (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !enter_landlock(paths(), tcp))) ::_exit(kNotEntered);
      ::_exit(work());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  TempDir folder_ = *TempDir::make("/tmp", "space-landlock-");
};

using Both = std::pair<int, int>;

TEST_F(LandlockTest, OnlyWhatIsAllowedIsReached) {
  EXPECT_EQ(both([&] { return errno_of(::open((path("own") / "file").c_str(), O_RDWR | O_TRUNC)); }), Both(0, 0));
  EXPECT_EQ(both([&] { return errno_of(::open((path("own") / "new").c_str(), O_WRONLY | O_CREAT, 0600)); }), Both(0, 0));
  EXPECT_EQ(both([&] { return errno_of(::open((path("closed") / "file").c_str(), O_RDONLY)); }), Both(EACCES, 0));
  EXPECT_EQ(both([&] { return errno_of(::open((path("own") / "../closed/file").c_str(), O_RDONLY)); }), Both(EACCES, 0));
  EXPECT_EQ(both([&] { return errno_of(::open((path("closed") / "new").c_str(), O_WRONLY | O_CREAT, 0600)); }), Both(EACCES, 0));
  EXPECT_EQ(both([] { return errno_of(::open("/etc/passwd", O_RDONLY)); }), Both(EACCES, 0));
  EXPECT_EQ(both([] { return errno_of(::execl("/bin/true", "true", nullptr)); }).first, EACCES);
}

TEST_F(LandlockTest, NamesMoveBetweenAllowedFolders) {
  const auto move = [&](const char* from, const char* to) {
    return [this, from, to] {
      const int done = errno_of(::rename((path(from) / "file").c_str(), (path(to) / "moved").c_str()));
      (void)::rename((path(to) / "moved").c_str(), (path(from) / "file").c_str());
      return done;
    };
  };
  EXPECT_EQ(both(move("own", "other")), Both(0, 0));
  EXPECT_NE(both(move("own", "closed")).first, 0);
  EXPECT_NE(both(move("closed", "own")).first, 0);
}

TEST_F(LandlockTest, AFileWithoutANameGetsOne) {
  // As the store of checkpoints does it.
  EXPECT_EQ(both([&] {
              const int file = ::open(path("own").c_str(), O_TMPFILE | O_RDWR, 0600);
              const std::string link = "/proc/self/fd/" + std::to_string(file), name = path("other") / "linked";
              ::unlink(name.c_str());
              return errno_of(::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW));
            }),
            Both(0, 0));
}

TEST_F(LandlockTest, TcpIsNarrowed) {
  if (landlock_version() < 4) GTEST_SKIP() << "Linux 6.7 and later";
  const auto on_loopback = [](auto call, std::uint16_t port) {
    return [call, port] {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return errno_of(call(::socket(AF_INET, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address), sizeof address));
    };
  };
  EXPECT_EQ(both(on_loopback(::bind, 0)), Both(EACCES, 0));
  EXPECT_EQ(both(on_loopback(::bind, 0), Tcp::connect), Both(EACCES, 0));
  EXPECT_EQ(both(on_loopback(::bind, 0), Tcp::connect_and_bind), Both(0, 0));
  EXPECT_EQ(both(on_loopback(::connect, 1)), Both(EACCES, ECONNREFUSED));
  EXPECT_EQ(both(on_loopback(::connect, 1), Tcp::connect), Both(ECONNREFUSED, ECONNREFUSED));
}

TEST_F(LandlockTest, NobodyOutsideIsSignalled) {
  if (landlock_version() < 6) GTEST_SKIP() << "Linux 6.12 and later";
  EXPECT_EQ(both([] { return errno_of(::kill(::getppid(), 0)); }), Both(EPERM, 0));
  EXPECT_EQ(both([] { return errno_of(::kill(::getpid(), 0)); }), Both(0, 0));
}

TEST_F(LandlockTest, APathThatMustBeThereIs) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    ::_exit(enter_landlock({{path("nowhere"), kRead}}, Tcp::none) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace space::confine
