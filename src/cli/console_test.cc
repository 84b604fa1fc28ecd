#include "cli/console.h"

#include <gtest/gtest.h>

#include "cli/copy.h"

namespace space::cli {
namespace {

TEST(Table, AlignsColumnsByWhatIsSeen) {
  Table table({"NAME", "SIZE"});
  table.add({"ä", "1"});
  table.add({"longer", ""});
  EXPECT_EQ(table.text(), "NAME    SIZE\nä       1\nlonger  -");
}

TEST(Printable, LeavesNothingThatDrivesATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\n"), "a\\x1b[2Jb\\x0d\\x0a");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(printable("ü 日本"), "ü 日本");
}

TEST(Format, BytesAndAges) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(3ull << 30), "3.0 GiB");
  EXPECT_EQ(format_age("2026-01-01T00:00:00.000Z", 1767225600000 + 90'000), "90s");
  EXPECT_EQ(format_age("2026-01-01T00:00:00Z", 1767225600000 + 3 * 86'400'000), "3d");
  EXPECT_EQ(format_age("yesterday", 0), "");
}

TEST(Copy, KnowsARemotePath) {
  const std::string id(24, 'a');
  const auto remote = parse_remote(id + ":/tmp/a:b");
  ASSERT_TRUE(remote);
  EXPECT_EQ(remote->sandbox, id);
  EXPECT_EQ(remote->path, "/tmp/a:b");
  for (const std::string& local : {std::string("file"), std::string("./") + id + ":/x", std::string("c:/x"), id})
    EXPECT_FALSE(parse_remote(local)) << local;
}

TEST(Copy, ANameFromAGuestCannotLeaveItsFolder) {
  for (const char* good : {"a", "...", " ", "-rf", "a\nb"}) EXPECT_TRUE(is_plain_name(good)) << good;
  for (const std::string bad : {"", ".", "..", "a/b", "/", "../x"}) EXPECT_FALSE(is_plain_name(bad)) << bad;
  EXPECT_FALSE(is_plain_name(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_plain_name(std::string(256, 'x')));
}

}  // namespace
}  // namespace space::cli
