#include "vmm/guest_memory.h"

#include <gtest/gtest.h>

namespace space::vmm {
namespace {

constexpr const char* kOther = "55e000000000-55e000001000 r-xp 00000000 08:01 1234   /usr/bin/vmm\n7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0   [stack]\n";

TEST(GuestMemory, IsFoundAmongOtherMaps) {
  const auto found = find_guest_memory(std::string(kOther) + "7f0000000000-7f0020000000 rw-p 00000000 00:01 42     /memfd:guest (deleted)\n");
  ASSERT_TRUE(found) << describe(found.error());
  EXPECT_EQ(found->address, 0x7f0000000000U);
  EXPECT_EQ(found->bytes, 0x20000000U);
}

TEST(GuestMemory, MayBeCutIntoNeighbours) {
  const auto found = find_guest_memory("7f0000000000-7f0000002000 rw-p 00000000 00:01 42 /memfd:guest (deleted)\n7f0000002000-7f0000005000 rw-p 00002000 00:01 42 /memfd:guest (deleted)\n");
  ASSERT_TRUE(found) << describe(found.error());
  EXPECT_EQ(found->bytes, 0x5000U);
}

TEST(GuestMemory, OddArrangementsAreRefused) {
  for (const char* maps : {
           "", kOther, "nonsense\n", "7f0000005000-7f0000002000 rw-p 00000000 00:01 42 /memfd:guest (deleted)\n",
           "7f0000000000-7f0000002000 rw-p 00001000 00:01 42 /memfd:guest (deleted)\n",  // its beginning is missing
           "7f0000000000-7f0000002000 rw-s 00000000 00:01 42 /memfd:guest (deleted)\n",  // shared
           "7f0000000000-7f0000002000 rw-p 00000000 00:01 42 /memfd:other (deleted)\n",
           "7f0000000000-7f0000002000 rw-p 00000000 00:01 42 /memfd:guest (deleted)\n7f0000003000-7f0000005000 rw-p 00002000 00:01 42 /memfd:guest (deleted)\n",
           "7f0000000001-7f0000002000 rw-p 00000000 00:01 42 /memfd:guest (deleted)\n"}) {
    const auto found = find_guest_memory(maps);
    ASSERT_FALSE(found) << maps;
    EXPECT_EQ(found.error().code, "guest_memory_not_found");
  }
}

}  // namespace
}  // namespace space::vmm
