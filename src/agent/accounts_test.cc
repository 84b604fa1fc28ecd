#include "agent/accounts.h"

#include <gtest/gtest.h>

#include "agent/range.h"
#include "agent/settings.h"
#include "agent/signals.h"
#include "agent/spawn.h"

namespace space::agent {
namespace {

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "user:x:1000:1000::/home/user:/bin/bash\n"
    "# a comment\n"
    "broken line\n"
    "minus:x:-1:-1::/:/bin/sh\n"
    "nobodyatall:x:4294967295:0::/:/bin/sh\n"
    "huge:x:99999999999:1::/:/bin/sh\n"
    "relative:x:1001:1001::home:\n"
    ":x:1002:1002::/:/bin/sh\n";
constexpr std::string_view kGroup = "root:x:0:\nuser:x:1000:\nsudo:x:27:user,other\ndocker:x:999:other,user,user\nbad:x:zz:user\n";

TEST(Accounts, FindsByNameAndByNumber) {
  const Accounts accounts(kPasswd, kGroup);
  EXPECT_EQ(accounts.find("user").value().home, "/home/user");
  EXPECT_EQ(accounts.find("1000").value().name, "user");
  EXPECT_EQ(accounts.find("relative").value().home, "/");
  EXPECT_EQ(accounts.find("relative").value().shell, "/bin/sh");
  EXPECT_EQ(accounts.user_name(0), "root");
  EXPECT_EQ(accounts.group_name(27), "sudo");
  EXPECT_EQ(accounts.group_id("docker"), 999u);
}

TEST(Accounts, SkipsLinesThatMakeNoSense) {
  const Accounts accounts(kPasswd, kGroup);
  for (const char* name : {"minus", "nobodyatall", "huge", "", "broken line", "4294967295", "1002", "nobody here"})
    EXPECT_EQ(accounts.find(name).error().code, "unknown_user") << name;
}

TEST(Accounts, SupplementaryGroupsAreThoseThatNameTheUserOnce) {
  const Accounts accounts(kPasswd, kGroup);
  const Identity identity = accounts.identity(accounts.find("user").value());
  EXPECT_EQ(identity.groups, (std::vector<gid_t>{1000, 27, 999}));
}

TEST(Accounts, RootIsThereEvenWithoutFiles) {
  const Accounts accounts("", "");
  EXPECT_EQ(accounts.find("root").value().uid, 0u);
}

TEST(Accounts, HugeFilesAreCut) {
  std::string passwd;
  for (int i = 0; i < 200'000; ++i) passwd += "u" + std::to_string(i) + ":x:" + std::to_string(i) + ":1::/:/bin/sh\n";
  const Accounts accounts(passwd, std::string(4 << 20, ','));
  EXPECT_TRUE(accounts.find("u100"));
  EXPECT_FALSE(accounts.find("u150000"));
}

TEST(Environment, CommandGoesBeforeSandboxBeforeTemplate) {
  Settings settings;
  settings.template_env = {{"A", "template"}, {"B", "template"}, {"C", "template"}, {"PATH", "/opt/bin"}};
  settings.sandbox_env = {{"A", "sandbox"}, {"B", "sandbox"}};
  const auto env = merge_environment(settings, {"user", 1000, 1000, "/home/user", "/bin/bash"}, {{"A", "command"}}, true);
  EXPECT_EQ(environment_value(env, "A"), "command");
  EXPECT_EQ(environment_value(env, "B"), "sandbox");
  EXPECT_EQ(environment_value(env, "C"), "template");
  EXPECT_EQ(environment_value(env, "PATH"), "/opt/bin");
  EXPECT_EQ(environment_value(env, "HOME"), "/home/user");
  EXPECT_EQ(environment_value(env, "TERM"), "xterm-256color");
}

TEST(Environment, RefusesWhatTheKernelWouldMisread) {
  EXPECT_TRUE(check_environment({{"A", ""}, {"b_1", "x=y"}}));
  EXPECT_FALSE(check_environment({{"", "x"}}));
  EXPECT_FALSE(check_environment({{"A=B", "x"}}));
  EXPECT_FALSE(check_environment({{"A", std::string("x\0y", 3)}}));
}

TEST(Paths, StartAtTheHomeWhenRelative) {
  const User user{"user", 1000, 1000, "/home/user", "/bin/bash"};
  EXPECT_EQ(absolute_path("/etc/x", user).value(), "/etc/x");
  EXPECT_EQ(absolute_path("x/y", user).value(), "/home/user/x/y");
  EXPECT_EQ(absolute_path("~/x", user).value(), "/home/user/x");
  EXPECT_EQ(absolute_path("~", user).value(), "/home/user");
  EXPECT_EQ(absolute_path("~x", user).value(), "/home/user/~x");
  EXPECT_FALSE(absolute_path("", user));
  EXPECT_FALSE(absolute_path(std::string("/a\0b", 4), user));
  EXPECT_FALSE(absolute_path("/" + std::string(4095, 'a'), user));
}

TEST(Programs, AreLookedForInPathUnlessTheyHaveASlash) {
  EXPECT_EQ(program_candidates("ls", "/bin:/usr/bin"), (std::vector<std::string>{"/bin/ls", "/usr/bin/ls"}));
  EXPECT_EQ(program_candidates("./ls", "/bin"), std::vector<std::string>{"./ls"});
  EXPECT_EQ(program_candidates("ls", ""), std::vector<std::string>{"./ls"});
}

TEST(Signals, HaveNamesAndNumbers) {
  EXPECT_EQ(signal_number("TERM"), 15);
  EXPECT_EQ(signal_number("SIGKILL"), 9);
  EXPECT_EQ(signal_number("2"), 2);
  for (const char* bad : {"", "0", "65", "-9", "9x", "NOPE", "SIG"}) EXPECT_FALSE(signal_number(bad)) << bad;
}

TEST(Ranges, FollowTheRfc) {
  const auto range = [](std::string_view header, std::uint64_t size) {
    const auto r = parse_range(header, size);
    return r ? std::tuple(r->satisfiable, r->first, r->length) : std::tuple(true, std::uint64_t{0}, size);
  };
  EXPECT_EQ(range("bytes=0-4", 10), std::tuple(true, 0u, 5u));
  EXPECT_EQ(range("bytes=5-", 10), std::tuple(true, 5u, 5u));
  EXPECT_EQ(range("bytes=-3", 10), std::tuple(true, 7u, 3u));
  EXPECT_EQ(range("bytes=-30", 10), std::tuple(true, 0u, 10u));
  EXPECT_EQ(range("bytes=8-100", 10), std::tuple(true, 8u, 2u));
  EXPECT_FALSE(std::get<0>(range("bytes=10-", 10)));
  EXPECT_FALSE(std::get<0>(range("bytes=-0", 10)));
  EXPECT_FALSE(std::get<0>(range("bytes=0-", 0)));
  for (const char* ignored :
       {"", "bytes=", "bytes=-", "bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "bytes=1-99999999999999999999999"})
    EXPECT_EQ(range(ignored, 10), std::tuple(true, 0u, 10u)) << ignored;
}

}  // namespace
}  // namespace space::agent
