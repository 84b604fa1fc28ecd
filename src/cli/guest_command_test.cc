#include "cli/guest_command.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace space::cli {
namespace {

using Words = std::vector<std::string>;

SplitLine split(const Words& words) {
  static std::string text;
  static bool flag;
  CLI::App app("test", "space");
  app.add_flag("--json", flag);
  app.add_option("--url", text);
  for (const char* name : {"run", "exec", "shell", "rm"}) {
    CLI::App* command = app.add_subcommand(name, "");
    command->add_option("-t,--template", text);
    command->add_flag("-k,--keep", flag);
    command->add_option("place", text);
  }
  return split_guest_command(app, words);
}

TEST(GuestCommand, BeginsAtTheFirstWordThatIsNoOption) {
  const SplitLine line = split({"run", "-t", "base", "-k", "python3", "-c", "print(1)", "-t", "x", "--json"});
  EXPECT_EQ(line.ours, (Words{"run", "-t", "base", "-k"}));
  EXPECT_EQ(line.guest, (Words{"python3", "-c", "print(1)", "-t", "x", "--json"}));
}

TEST(GuestCommand, BeginsBehindTheSandboxOfExec) {
  const SplitLine line = split({"--url", "http://h:1", "exec", "--json", "abc", "ls", "-l"});
  EXPECT_EQ(line.ours, (Words{"--url", "http://h:1", "exec", "--json", "abc"}));
  EXPECT_EQ(line.guest, (Words{"ls", "-l"}));
}

TEST(GuestCommand, ADoubleDashCutsAndVanishes) {
  EXPECT_EQ(split({"run", "--", "-x", "--", "y"}).guest, (Words{"-x", "--", "y"}));
  EXPECT_EQ(split({"exec", "abc", "--", "ls"}).guest, (Words{"ls"}));
  EXPECT_EQ(split({"shell", "abc", "--", "zsh"}).guest, (Words{"zsh"}));
}

TEST(GuestCommand, TheTemplateOfRunMayStandBeforeTheDashes) {
  const SplitLine line = split({"run", "-k", "base:latest", "--", "ls", "-l"});
  EXPECT_EQ(line.ours, (Words{"run", "-k", "base:latest"}));
  EXPECT_EQ(line.guest, (Words{"ls", "-l"}));
  EXPECT_EQ(split({"run", "ls", "-l", "--", "x"}).guest, (Words{"ls", "-l", "--", "x"}));
}

TEST(GuestCommand, AnOptionWithItsValueInOneWordTakesNoOther) {
  EXPECT_EQ(split({"run", "--template=base", "ls"}).guest, (Words{"ls"}));
  EXPECT_EQ(split({"run", "-tbase", "ls"}).guest, (Words{"ls"}));
}

TEST(GuestCommand, OtherCommandsAreLeftAlone) {
  const SplitLine line = split({"rm", "abc", "run", "--", "x"});
  EXPECT_EQ(line.ours, (Words{"rm", "abc", "run", "--", "x"}));
  EXPECT_TRUE(line.guest.empty());
}

}  // namespace
}  // namespace space::cli
