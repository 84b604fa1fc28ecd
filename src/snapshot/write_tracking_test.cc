// A child process stands in for a VMM: it maps a sealed image privately, makes a userfaultfd as userfault_preload.c does, hands it
// over, and then writes the pages that it is told to.
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/unix_socket.h"
#include "snapshot/dirty_pages.h"
#include "snapshot/local_blob_store.h"
#include "snapshot/memory_state.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

namespace space::snapshot {
namespace {

constexpr std::uint64_t kPages = 4096, kBytes = kPages * kPageBytes;

struct Order {
  std::uint32_t page = 0, count = 0, fill = 0;
};

class StandIn {
 public:
  explicit StandIn(const Fd& base) {
    auto pair = seqpacket_pair().value(), link = seqpacket_pair().value();
    pid_ = ::fork();
    if (pid_ == 0) {
      auto* own = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, base.get(), 0));
      const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC),
                made = device < 0 ? -1 : ::ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
      const std::byte word{'u'};
      (void)send_packet(link.second, std::span(&word, 1), made < 0 ? std::span<const int>{} : std::span(&made, 1));
      ::close(made);
      for (Order order; ::read(pair.second.get(), &order, sizeof order) == sizeof order;) {
        std::memset(own + order.page * kPageBytes, static_cast<int>(order.fill), order.count * kPageBytes);
        (void)!::write(pair.second.get(), "d", 1);
      }
      ::_exit(0);
    }
    orders_ = std::move(pair.first);
    link_ = std::move(link.first);
    fill(0, 0, 0);  // now its map is there
    const std::string proc = "/proc/" + std::to_string(pid_);
    memory = std::make_unique<GuestMemory>(GuestMemory::find(open_file(proc + "/mem", O_RDWR).value(),
                                                             open_file(proc + "/pagemap", O_RDONLY).value(),
                                                             open_file(proc + "/maps", O_RDONLY).value(), kBytes)
                                               .value());
  }
  ~StandIn() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void fill(std::uint32_t page, std::uint32_t count, char with) {
    const Order order{page, count, static_cast<std::uint32_t>(with)};
    char answer;
    ASSERT_EQ(::write(orders_.get(), &order, sizeof order), static_cast<ssize_t>(sizeof order));
    ASSERT_EQ(::read(orders_.get(), &answer, 1), 1);
  }

  pid_t pid_ = 0;
  Fd orders_, link_;
  std::unique_ptr<GuestMemory> memory;
};

class WriteTracking : public ::testing::Test {
 protected:
  WriteTracking() : dir_(TempDir::make("/tmp", "space-tracking-").value()) {
    Fd memory = new_guest_memory(kBytes).value();
    const std::string page(kPageBytes, 'b');
    for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_TRUE(pwrite_all(memory, std::as_bytes(std::span(page)), i * kPageBytes));
    const Fd file = open_file(dir_.path() / "base", O_RDWR | O_CREAT).value();
    base_ = load_memory_image(file, store_memory_image(memory, kBytes, file).value()).value();
  }
  void SetUp() override {
    if (::access("/dev/userfaultfd", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/userfaultfd, or no right to it";
  }
  using Ranges = std::vector<PageRange>;
  TempDir dir_;
  Fd base_;
};

TEST_F(WriteTracking, ReportsWhatWasWrittenSinceTheLastCheckpointAndNothingElse) {
  StandIn vm(base_);
  const auto dirty = watch_writes(*vm.memory, vm.link_, &base_);
  auto set = dirty->take();
  ASSERT_TRUE(set) << describe(set.error());
  if (set->since_load) GTEST_SKIP() << "this kernel has no asynchronous write protection";
  EXPECT_EQ(set->ranges, Ranges{});
  dirty->confirm();
  vm.fill(5, 1, 'x');     // of the base
  vm.fill(3000, 2, 'x');  // never touched before
  EXPECT_EQ(dirty->take()->ranges, (Ranges{{5, 1}, {3000, 2}}));
  vm.fill(6, 1, 'x');
  EXPECT_EQ(dirty->take()->ranges, (Ranges{{5, 2}, {3000, 2}})) << "what a failed checkpoint took comes again";
  dirty->confirm();
  EXPECT_EQ(dirty->take()->ranges, Ranges{});
  vm.fill(5, 1, 'y');
  EXPECT_EQ(dirty->take()->ranges, (Ranges{{5, 1}})) << "a page that was written before";
  dirty->confirm();
  std::vector<std::byte> page(kPageBytes);
  ASSERT_TRUE(vm.memory->read(700, page));  // a look from outside at what the image has is not a write
  EXPECT_EQ(dirty->take()->ranges, Ranges{});
}

TEST_F(WriteTracking, WhatTheImageHasNoDataForNeedsNoProtectionToBeFound) {
  StandIn vm(base_);
  const auto dirty = watch_writes(*vm.memory, vm.link_, nullptr);
  vm.fill(5, 1, 'x');
  vm.fill(4000, 1, 'x');
  auto set = dirty->take();
  ASSERT_TRUE(set) << describe(set.error());
  if (set->since_load) GTEST_SKIP() << "this kernel has no asynchronous write protection";
  EXPECT_EQ(set->ranges, (Ranges{{5, 1}, {4000, 1}}));
  dirty->confirm();
  vm.fill(4001, 1, 'x');
  vm.fill(4000, 1, 'y');
  EXPECT_EQ(dirty->take()->ranges, (Ranges{{4000, 2}}));
}

TEST_F(WriteTracking, WhenItsOwnerEndsTheScanFindsWhatWasWrittenAndLittleElse) {
  StandIn vm(base_);
  auto dirty = watch_writes(*vm.memory, vm.link_, &base_);
  vm.fill(5, 1, 'x');
  ASSERT_TRUE(dirty->take());
  dirty->confirm();
  vm.fill(2000, 10, 'x');
  dirty.reset();  // as when node is killed: the kernel takes the protection away with the descriptor
  vm.fill(3000, 1, 'y');
  const auto set = scan_pagemap(*vm.memory)->take();
  ASSERT_TRUE(set) << describe(set.error());
  EXPECT_TRUE(set->since_load);
  EXPECT_EQ(set->ranges, (Ranges{{5, 1}, {2000, 10}, {3000, 1}}));
}

TEST_F(WriteTracking, ACheckpointOfAWokenVmStoresOnlyWhatChangedAfterItsLoad) {
  const auto store = LocalBlobStore::open(dir_.path() / "store").value();
  const auto lease = store->lease("acme").value();
  const auto checkpoint = [&](StandIn& vm, DirtyPages& dirty, const MemoryState* parent) {
    auto set = dirty.take().value();
    const auto looked_at = count_pages(set.ranges);
    const auto pages = capture(*vm.memory, std::move(set), dir_.path());
    auto stored = store_memory(*store, *lease, *pages, base_, parent);
    EXPECT_TRUE(stored) << describe(stored.error());
    dirty.confirm();
    return std::pair(std::move(*stored), looked_at);
  };
  StandIn vm(base_);
  const auto dirty = watch_writes(*vm.memory, vm.link_, &base_);
  vm.fill(100, 2000, 'p');
  const auto [first, first_pages] = checkpoint(vm, *dirty, nullptr);
  EXPECT_EQ(first.changed_pages, 2000u);

  StandIn woken(base_);
  const auto again = watch_writes(*woken.memory, woken.link_, &base_);
  ASSERT_TRUE(load_memory(*store, "acme", first.state, *woken.memory));
  ASSERT_TRUE(again->take());
  again->confirm();
  woken.fill(150, 1, 'q');
  woken.fill(151, 1, 'b');  // as the base has it
  woken.fill(152, 1, '\0');
  const auto [second, second_pages] = checkpoint(woken, *again, &first.state);
  EXPECT_EQ(second.changed_pages, 3u);
  if (const auto set = again->take(); set && !set->since_load) {
    EXPECT_EQ(second_pages, 3u) << "and no other page was looked at";
  }
  StandIn third(base_);
  ASSERT_TRUE(load_memory(*store, "acme", second.state, *third.memory));
  std::vector<std::byte> a(kBytes), b(kBytes);
  ASSERT_TRUE(woken.memory->read(0, a));
  ASSERT_TRUE(third.memory->read(0, b));
  EXPECT_TRUE(a == b);
}

}  // namespace
}  // namespace space::snapshot
