#include "agent/old_connections.h"

#include <gtest/gtest.h>

namespace space::agent {
namespace {

constexpr const char* kHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

std::string line(const char* local, const char* remote, const char* state, const char* inode) {
  return std::string("   0: ") + local + " " + remote + " " + state + " 00000000:00000000 00:00000000 00000000  1000        0 " + inode +
         " 1 0 100 0 0 10 0\n";
}

TEST(OldConnections, OnlyThoseToTheHostAreFound) {
  const std::string table = std::string(kHead) + line("0200000A:C33F", "0100000A:9C40", "01", "11") +  // the agent's own, from the host
                            line("0200000A:A000", "0A0012C6:01BB", "01", "12") +                       // to the gateway, 198.18.0.10:443
                            line("0100007F:1F90", "0100007F:A001", "01", "13") +                       // between two programs of the guest
                            line("0200000A:1F90", "0200000A:A002", "01", "14") +  // the same, over the guest's own address
                            line("010011AC:1F90", "020011AC:A003", "01", "15") +  // to a container of the guest's
                            line("0200000A:1F90", "00000000:0000", "0A", "16") +  // a listener
                            line("0200000A:A004", "0A0012C6:01BB", "06", "0") +   // over already, with no socket
                            line("0200000A:A005", "0A0012C6:01BB", "08", "17");   // the other end has closed its direction
  const auto found = connections_on_wire(table);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].inode, 11u);
  EXPECT_EQ(found[0].local_port, 49983);
  EXPECT_EQ(found[0].remote_port, 40000);
  EXPECT_EQ(found[1].inode, 12u);
  EXPECT_EQ(found[2].inode, 17u);
}

TEST(OldConnections, IPv6AndMappedAddressesCountToo) {
  const std::string table = std::string(kHead) +
                            line("CE5A00FD000000000000000002000000:C33F", "CE5A00FD000000000000000001000000:9C40", "01", "21") +
                            line("0000000000000000FFFF00000200000A:C33F", "0000000000000000FFFF00000100000A:9C41", "01", "22") +
                            line("00000000000000000000000001000000:1F90", "00000000000000000000000001000000:9C42", "01", "23");
  const auto found = connections_on_wire(table);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].inode, 21u);
  EXPECT_EQ(found[1].remote_port, 40001);
}

TEST(OldConnections, WhatIsNoLineIsSkipped) {
  for (const char* bad : {"", "\n\n", "x", "0: zz:1 0100000A:1 01 0 0 0 0 0 5\n", "0: 0200000A:FFFFF 0100000A:1 01 a b c 1 2 5\n",
                          "0: 0200000A 0100000A 01 a b c 1 2 5\n"})
    EXPECT_TRUE(connections_on_wire(bad).empty()) << bad;
}

}  // namespace
}  // namespace space::agent
