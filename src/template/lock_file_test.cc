#include "template/lock_file.h"

#include <gtest/gtest.h>

namespace space::tmpl {
namespace {

const std::string kHash(64, 'a');
const std::string kGood = "space-lock 1\n# a comment\nsource http://a.example/debian bookworm main\npackage zlib1g 1:1.2.13.dfsg-1 amd64 " +
                          kHash + "\npackage adduser 3.134 all " + kHash + "\n";

TEST(LockFileTest, PackagesAndSources) {
  const auto lock = parse_lock_file(kGood);
  ASSERT_TRUE(lock) << describe(lock.error());
  ASSERT_EQ(lock->packages.size(), 2U);
  EXPECT_EQ(lock->packages[0], (LockedPackage{"adduser", "3.134", "all", kHash}));
  EXPECT_EQ(lock->packages[1].version, "1:1.2.13.dfsg-1");
  ASSERT_EQ(lock->sources.size(), 1U);
  EXPECT_EQ(lock->sources[0], "http://a.example/debian bookworm main");
}

TEST(LockFileTest, EveryDamageIsNamedByItsLine) {
  const auto package = "package bash 5.2 amd64 " + kHash + "\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 1"},
      {"space-lock 2\n", "line 1"},
      {"space-lock 1\n", "names no package"},
      {"space-lock 1\npackage bash 5.2 amd64 " + kHash, "cut"},
      {"space-lock 1\npackage bash 5.2 amd64\n", "line 2"},
      {"space-lock 1\npackage ../bash 5.2 amd64 " + kHash + "\n", "name"},
      {"space-lock 1\npackage -o 5.2 amd64 " + kHash + "\n", "name"},
      {"space-lock 1\npackage bash 5;2 amd64 " + kHash + "\n", "version"},
      {"space-lock 1\npackage bash .5 amd64 " + kHash + "\n", "version"},
      {"space-lock 1\npackage bash 5.2 arm64 " + kHash + "\n", "architecture"},
      {"space-lock 1\npackage bash 5.2 amd64 " + std::string(63, 'a') + "\n", "SHA-256"},
      {"space-lock 1\npackage bash 5.2 amd64 " + std::string(64, 'A') + "\n", "SHA-256"},
      {"space-lock 1\n" + package + package, "twice"},
      {"space-lock 1\n" + package + "removed bash\n", "line 3"},
      {"space-lock 1\nsource file:/etc/passwd bookworm main\n" + package, "line 2"},
  };
  for (const auto& [text, words] : cases) {
    const auto lock = parse_lock_file(text);
    ASSERT_FALSE(lock) << text;
    EXPECT_EQ(lock.error().code, "template_lock");
    EXPECT_NE(lock.error().message.find(words), std::string::npos) << lock.error().message;
  }
}

}  // namespace
}  // namespace space::tmpl
