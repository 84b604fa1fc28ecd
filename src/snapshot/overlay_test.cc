#include "snapshot/overlay.h"

#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"

namespace space::snapshot {
namespace {

// The exit status and output of a tool that knows the format; the images here are our own.
std::pair<int, std::string> run(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) out += buffer;
  return {::pclose(pipe), out};
}

TEST(Overlays, AreWhatQemuMakesItself) {
  if (run("qemu-img --version").first != 0) GTEST_SKIP() << "qemu-img is not here";
  const TempDir dir = TempDir::make("/tmp", "space-overlay-").value();
  for (const std::uint64_t bytes :
       {std::uint64_t{512}, std::uint64_t{4} << 30, (std::uint64_t{100} << 30) + 512, std::uint64_t{16} << 40}) {
    const auto path = dir.path() / std::to_string(bytes);
    const Fd file = open_file(path, O_RDWR | O_CREAT).value();
    ASSERT_TRUE(write_empty_overlay(file, bytes));
    const auto [status, text] = run("qemu-img check " + path.string());
    EXPECT_EQ(status, 0) << text;
    const std::string info = run("qemu-img info " + path.string()).second;
    EXPECT_NE(info.find("(" + std::to_string(bytes) + " bytes)"), std::string::npos) << info;
    for (const char* line : {"cluster_size: 131072", "extended l2: true", "lazy refcounts: true", "compat: 1.1"})
      EXPECT_NE(info.find(line), std::string::npos) << line << "\n" << info;
    struct stat st {};
    ::fstat(file.get(), &st);
    EXPECT_LE(st.st_blocks * 512, 16 << 10);
  }
  // And it takes what is written into it.
  const std::string path = (dir.path() / std::to_string(std::uint64_t{4} << 30)).string();
  EXPECT_EQ(run("qemu-io -c 'write -P 7 3000M 64k' -c 'read -P 7 3000M 64k' -c 'read -P 0 0 64k' " + path).second.find("failed"),
            std::string::npos);
  EXPECT_EQ(run("qemu-img check " + path).first, 0);
  EXPECT_EQ(write_empty_overlay(open_file(path + ".bad", O_RDWR | O_CREAT).value(), 100).error().code, "invalid_disk_size");
}

}  // namespace
}  // namespace space::snapshot
