// A stand-in for a VM: this process maps a sealed image privately, as a VMM does, and is read and written through its own /proc.
#include "snapshot/memory_state.h"

#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "snapshot/local_blob_store.h"

namespace space::snapshot {
namespace {

constexpr std::uint64_t kVmPages = 2048, kVmBytes = kVmPages * kPageBytes;

class Vm {
 public:
  explicit Vm(const Fd& base)
      : address_(static_cast<std::byte*>(::mmap(nullptr, kVmBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, base.get(), 0))) {
    EXPECT_NE(address_, MAP_FAILED);
    // Several stand-ins in one process: each sees the line of its own map only.
    char text[128];
    std::snprintf(text, sizeof text, "%lx-%lx rw-p 00000000 00:01 7  /memfd:guest (deleted)\n", reinterpret_cast<unsigned long>(address_),
                  reinterpret_cast<unsigned long>(address_) + kVmBytes);
    Fd maps(::memfd_create("maps", MFD_CLOEXEC));
    EXPECT_TRUE(write_all(maps, text));
    ::lseek(maps.get(), 0, SEEK_SET);
    memory =
        GuestMemory::find(open_file("/proc/self/mem", O_RDWR).value(), open_file("/proc/self/pagemap", O_RDONLY).value(), maps, kVmBytes)
            .value();
  }
  ~Vm() { ::munmap(address_, kVmBytes); }
  Vm(const Vm&) = delete;
  Vm& operator=(const Vm&) = delete;
  void fill(std::uint64_t page, char with) { std::memset(address_ + page * kPageBytes, with, kPageBytes); }
  void noise(std::uint64_t page, unsigned seed) {
    for (std::size_t i = 0; i < kPageBytes; ++i)
      address_[page * kPageBytes + i] = static_cast<std::byte>((seed = seed * 1664525u + 1013904223u) >> 24);
  }
  bool same(const Vm& other) const { return std::memcmp(address_, other.address_, kVmBytes) == 0; }

  std::byte* address_;
  GuestMemory memory;
};

class MemoryStates : public ::testing::Test {
 protected:
  MemoryStates() : dir_(TempDir::make("/tmp", "space-layers-").value()) {
    Fd memory = new_guest_memory(kVmBytes).value();
    for (std::uint64_t page = 0; page < 1024; ++page) {  // the upper half is zero
      const std::string bytes(kPageBytes, static_cast<char>('a' + page % 26));
      EXPECT_TRUE(pwrite_all(memory, std::as_bytes(std::span(bytes)), page * kPageBytes));
    }
    const Fd file = open_file(dir_.path() / "base", O_RDWR | O_CREAT).value();
    const MemoryImage image = store_memory_image(memory, kVmBytes, file).value();
    base_ = load_memory_image(file, image).value();
    store_ = LocalBlobStore::open(dir_.path() / "store").value();
    lease_ = store_->lease("tenant").value();
  }
  StoredMemory checkpoint(Vm& vm, const MemoryState* parent = nullptr) {
    const auto dirty = scan_pagemap(vm.memory);
    auto set = dirty->take();
    EXPECT_TRUE(set) << describe(set.error());
    auto pages = capture(vm.memory, std::move(*set), dir_.path());
    EXPECT_TRUE(pages) << describe(pages.error());
    auto stored = store_memory(*store_, *lease_, *pages, base_, parent);
    EXPECT_TRUE(stored) << describe(stored.error());
    return std::move(*stored);
  }
  void expect_loads(const MemoryState& state, const Vm& original) {
    Vm copy(base_);
    const auto loaded = load_memory(*store_, "tenant", state, copy.memory);
    ASSERT_TRUE(loaded) << describe(loaded.error());
    EXPECT_TRUE(copy.same(original));
  }

  TempDir dir_;
  Fd base_;
  std::unique_ptr<LocalBlobStore> store_;
  std::unique_ptr<Lease> lease_;
};

TEST_F(MemoryStates, AnotherVmGetsTheSameMemory) {
  Vm vm(base_);
  for (std::uint64_t page : {0, 1, 2, 700, 1500, 2047}) vm.noise(page, static_cast<unsigned>(page) + 1);
  for (std::uint64_t page = 100; page < 200; ++page) vm.noise(page, static_cast<unsigned>(page));
  const StoredMemory stored = checkpoint(vm);
  EXPECT_EQ(stored.changed_pages, 106u);
  EXPECT_LT(stored.stored_bytes, 106 * kPageBytes + 8192);
  EXPECT_EQ(stored.state.layers.size(), 1u);
  expect_loads(stored.state, vm);
}

TEST_F(MemoryStates, APageThatBecameZeroIsWrittenAsZero) {
  Vm vm(base_);
  vm.fill(5, '\0');     // the base has something there
  vm.fill(1500, '\0');  // and nothing here
  const StoredMemory stored = checkpoint(vm);
  EXPECT_EQ(stored.changed_pages, 1u);
  EXPECT_EQ(stored.stored_bytes, 0u);
  EXPECT_EQ(stored.state.map.at(5).kind, PagePlace::Kind::zero);
  EXPECT_EQ(stored.state.map.at(1500).kind, PagePlace::Kind::base);
  expect_loads(stored.state, vm);
}

TEST_F(MemoryStates, OnlyWhatChangedIsStoredAgain) {
  Vm vm(base_);
  for (std::uint64_t page = 0; page < 500; ++page) vm.noise(page, static_cast<unsigned>(page) + 9);
  const StoredMemory first = checkpoint(vm);
  vm.noise(7, 123);
  vm.fill(8, 'i');  // as the base has it
  vm.fill(9, '\0');
  const StoredMemory second = checkpoint(vm, &first.state);
  EXPECT_EQ(second.changed_pages, 3u);
  EXPECT_LT(second.stored_bytes, 3 * kPageBytes);
  EXPECT_EQ(second.state.map.at(8).kind, PagePlace::Kind::base);
  expect_loads(second.state, vm);
  // A VM made of the second one goes on in the same way, and every page lies where the map says: no ancestor is read.
  Vm fork(base_);
  ASSERT_TRUE(load_memory(*store_, "tenant", second.state, fork.memory));
  fork.noise(1900, 5);
  const StoredMemory third = checkpoint(fork, &second.state);
  EXPECT_EQ(third.changed_pages, 1u);
  expect_loads(third.state, fork);
}

TEST_F(MemoryStates, ALayerThatNoPageLiesInAnyMoreIsForgotten) {
  Vm vm(base_);
  vm.noise(3, 1);
  const StoredMemory first = checkpoint(vm);
  vm.noise(3, 2);
  const StoredMemory second = checkpoint(vm, &first.state);
  ASSERT_EQ(second.state.layers.size(), 1u);
  EXPECT_NE(second.state.layers[0], first.state.layers[0]);
  expect_loads(second.state, vm);
}

TEST_F(MemoryStates, ALongChainKeepsFewLayersAndTheSameMemory) {
  Vm vm(base_);
  std::optional<MemoryState> last;
  std::size_t most = 0;
  for (unsigned i = 0; i < 150; ++i) {
    vm.noise(1024 + i, i + 1);  // stays where it is for ever
    vm.noise(i % 7, 1000 + i);  // written again and again
    StoredMemory stored = checkpoint(vm, last ? &*last : nullptr);
    EXPECT_EQ(stored.changed_pages, 2u) << i;
    most = std::max(most, stored.state.layers.size());
    last = std::move(stored.state);
  }
  EXPECT_LE(most, 64u);
  EXPECT_GT(most, 32u);
  expect_loads(*last, vm);
}

TEST_F(MemoryStates, AFlippedBitAndAShortLayerAreFoundAtTheLoad) {
  Vm vm(base_);
  for (std::uint64_t page = 0; page < 100; ++page) vm.noise(page, static_cast<unsigned>(page) + 9);
  const StoredMemory stored = checkpoint(vm);
  const BlobRef blob = stored.state.layers[0].blob;
  const auto path = dir_.path() / "store/tenants/tenant/blobs" / blob.digest.substr(7);
  const std::string whole = read_file(path, 1 << 20).value();
  const auto load = [&](const std::string& content) {
    Vm copy(base_);
    EXPECT_TRUE(write_file_durable(path, content));
    const auto loaded = load_memory(*store_, "tenant", stored.state, copy.memory);
    return loaded ? std::string("loaded") : loaded.error().code;
  };
  EXPECT_EQ(load(whole), "loaded");
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{5000}, whole.size() / 2, whole.size() - 500, whole.size() - 41, whole.size() - 20, whole.size() - 1}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    EXPECT_EQ(load(flipped), "layer_damaged") << at;
  }
  EXPECT_EQ(load(whole.substr(0, whole.size() - 1)), "blob_truncated");
  EXPECT_EQ(load(""), "blob_truncated");
  ASSERT_EQ(::unlink(path.c_str()), 0);
  Vm copy(base_);
  EXPECT_EQ(load_memory(*store_, "tenant", stored.state, copy.memory).error().code, "blob_missing");
}

}  // namespace
}  // namespace space::snapshot
