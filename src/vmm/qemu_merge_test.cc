// Merging with the real QEMU, unjailed: what a guest reads through the merged image is what it read through the generations.
#include "vmm/qemu_merge.h"

#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "vmm/qemu_driver.h"
#include "vmm/test_warden.h"

namespace space::vmm {
namespace {

constexpr const char* kForm = "qemu-img create -q -f qcow2 -o cluster_size=128k,extended_l2=on,lazy_refcounts=on";

class Merging : public ::testing::Test {
 protected:
  Merging() : dir_(TempDir::make("/tmp", "space-merge-").value()) {}
  void SetUp() override {
    if (std::system("command -v qemu-io >/dev/null && command -v qemu-system-x86_64 >/dev/null") != 0)
      GTEST_SKIP() << "needs qemu-utils and qemu-system-x86";
    run(fmt::format("qemu-img create -q -f raw {} 16M && qemu-io -f raw -c 'write -q -P 0xaa 0 16M' {}", path("base"), path("base")));
    for (const char* name : {"0", "1", "2", "into", "scratch"}) run(fmt::format("{} {} 16M", kForm, path(name)));
  }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  static void run(const std::string& line) { EXPECT_EQ(std::system(line.c_str()), 0) << line; }
  // A chain over the base, as an argument of qemu-img.
  std::string chain(const std::vector<std::string>& names) const {
    std::string below = fmt::format(R"({{"driver":"raw","file":{{"driver":"file","filename":"{}"}}}})", path("base"));
    for (const std::string& name : names)
      below = fmt::format(R"({{"driver":"qcow2","file":{{"driver":"file","filename":"{}"}},"backing":{}}})", path(name), below);
    return "'json:" + below + "'";
  }
  // In the generation `name` over those below it.
  void write(const std::vector<std::string>& names, const std::string& commands) {
    run(fmt::format("qemu-io {} {} >/dev/null", commands, chain(names)));
  }
  Result<> merge(const std::vector<std::string>& names) {
    DiskMerge order;
    order.id = new_id();
    order.disk_mib = 16;
    for (const std::string& name : names) order.generations.push_back(open_file(path(name), O_RDONLY).value());
    order.into = open_file(path("into"), O_RDWR).value();
    order.scratch = open_file(path("scratch"), O_RDWR).value();
    auto warden = std::make_shared<TestWarden>();
    std::optional<Result<>> done;
    spawn(loop_.get_executor(),
          [](std::shared_ptr<wire::WardenClient> client, BlockingPool& pool, std::filesystem::path sockets, DiskMerge merge,
             std::optional<Result<>>& out) -> asio::awaitable<void> {
            QemuOptions options;
            options.sockets = sockets;
            auto driver = co_await QemuDriver::open(client, pool, options);
            out = co_await (*driver)->merge_generations(std::move(merge));
          }(warden, pool_, dir_.path() / "sockets", std::move(order), done));
    loop_.run_for(std::chrono::seconds(60));
    EXPECT_TRUE(warden->list().value().empty()) << "its process is left";
    EXPECT_TRUE(std::filesystem::is_empty(dir_.path() / "sockets"));
    return done.value_or(fail(ErrorKind::deadline_exceeded, "no_answer", ""));
  }
  std::uint64_t blocks(const std::string& name) const {
    struct stat st {};
    return ::stat(path(name).c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
  }

  TempDir dir_;
  asio::io_context loop_;
  BlockingPool pool_{2};
};

TEST_F(Merging, TheNewestWinsHolesStayHolesAndNothingGrows) {
  write({"0"}, "-c 'write -P 1 0 8k' -c 'write -P 2 130k 3k' -c 'write -P 3 5M 700k' -c 'write -P 4 9M 4k'");
  write({"0", "1"}, "-c 'write -P 5 4k 4k' -c 'write -z 5100k 8k' -c 'write -P 6 1020k 8k' -c 'discard 9M 4k'");
  write({"0", "1", "2"}, "-c 'write -P 7 6k 1k' -c 'write -P 0 5M 64k' -c 'write -z 12M 1M'");
  const auto done = merge({"0", "1", "2"});
  ASSERT_TRUE(done) << describe(done.error());
  run(fmt::format("qemu-img compare -q {} {}", chain({"0", "1", "2"}), chain({"into"})));
  run(fmt::format("qemu-img check -q {}", path("into")));
  // 4 KiB that changed are 4 KiB: 24 KiB here and there, 700 KiB in a row, and tables.
  EXPECT_LT(blocks("into"), 1'400u << 10);
}

// The merge of a part of a chain: what lies below is not there while it is made, and shows through afterwards.
TEST_F(Merging, APartOfAChainLeavesTheRestAsItIs) {
  write({"0"}, "-c 'write -P 1 0 1M' -c 'write -P 1 3M 1M'");
  write({"0", "1"}, "-c 'write -P 2 64k 4k' -c 'write -z 512k 4k'");
  write({"0", "1", "2"}, "-c 'write -P 3 68k 4k' -c 'write -P 3 3M 4k'");
  const auto done = merge({"1", "2"});
  ASSERT_TRUE(done) << describe(done.error());
  run(fmt::format("qemu-img compare -q {} {}", chain({"0", "1", "2"}), chain({"0", "into"})));
  EXPECT_LT(blocks("into"), 600u << 10);
}

TEST_F(Merging, WhatIsNoImageFailsAndLeavesNothingBehind) {
  run(fmt::format("head -c 1M /dev/urandom > {}", path("1")));
  EXPECT_FALSE(merge({"0", "1"}));
}

TEST(MergeLaunch, OddOrdersAreRefused) {
  DiskMerge merge;
  EXPECT_EQ(qemu_merge_launch(merge, {}).error().code, "invalid_merge");
  merge.id = new_id();
  EXPECT_EQ(qemu_merge_launch(merge, {}).error().code, "invalid_merge");
}

}  // namespace
}  // namespace space::vmm
