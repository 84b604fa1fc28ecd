#include "cli/dockerfile.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "cli/build_context.h"

namespace space::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> shown(const Dockerfile& file) {
  std::vector<std::string> out;
  for (const DockerStep& step : file.steps) {
    std::string one = step.type;
    for (const std::string& arg : step.args) one += " [" + arg + "]";
    out.push_back(one + (step.owner.empty() ? "" : " owner " + step.owner));
  }
  return out;
}

TEST(DockerfileTest, BecomesSteps) {
  const auto file = parse_dockerfile(
      "# syntax=docker/dockerfile:1\nARG TAG=latest\nFROM base:$TAG AS one\n"
      "ENV A=1 B=\"two words\" \\\n  # a comment inside\n  C='$A'\nENV OLD style value\nRUN apt-get update && \\\n    true\n"
      "RUN [\"printf\", \"it's\"]\nCOPY --chown=bob a.txt dir /app/\nWORKDIR /app\nCMD [\"python3\", \"-m\", \"http.server\"]\n",
      {});
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->parent, "base:latest");
  EXPECT_THAT(shown(*file), ElementsAre("USER [root]", "WORKDIR [/]", "ENV [A] [1] [B] [two words] [C] [\\$A]", "ENV [OLD] [style value]",
                                        "RUN [apt-get update &&  true]", "RUN [printf 'it'\\''s']", "COPY [a.txt] [dir] [/app/] owner bob",
                                        "WORKDIR [/app]", "USER [user]"));
  EXPECT_EQ(file->start, "python3 -m http.server");
}

TEST(DockerfileTest, TakesArguments) {
  const std::string text = "FROM base\nARG NAME=x\nARG OTHER\nCOPY $NAME.txt /\n";
  EXPECT_EQ(parse_dockerfile(text, {})->steps[3].args[0], "x.txt");
  EXPECT_EQ(parse_dockerfile(text, {{"NAME", "y"}})->steps[3].args[0], "y.txt");
  EXPECT_THAT(parse_dockerfile(text, {{"NONE", "y"}}).error().message, HasSubstr("NONE"));
}

TEST(DockerfileTest, RefusesByLineWithWhatToDo) {
  const std::pair<const char*, const char*> cases[] = {
      {"RUN true", "line 1: RUN before FROM"},
      {"FROM base\n\nEXPOSE 80", "line 3: EXPOSE"},
      {"FROM base\nFROM base", "line 2: a second FROM"},
      {"FROM base\nCOPY --from=x a b", "line 2: COPY with --from"},
      {"FROM base\nADD https://example.org/x /", "line 2: ADD from a network"},
      {"FROM base\nADD x.tar.gz /", "line 2: ADD of an archive"},
      {"FROM base\nRUN --mount=type=cache true", "line 2: RUN with an option"},
      {"FROM base\nRUN <<EOF\ntrue\nEOF", "line 2: a here-document"},
      {"FROM base\nENV A=\"x", "line 2: a quote"},
      {"FROM base\nUSER 1000", "line 2: USER by number"},
      {"FROM scratch", "line 1: FROM scratch"},
      {"", "no FROM"},
  };
  for (const auto& [text, what] : cases) {
    const auto file = parse_dockerfile(text, {});
    ASSERT_FALSE(file) << text;
    EXPECT_THAT(file.error().message, HasSubstr(what)) << text;
    EXPECT_FALSE(file.error().next.empty()) << text;
  }
}

struct BuildContextTest : ::testing::Test {
  void put(const std::string& name, std::string_view text) {
    ASSERT_TRUE(make_directories((dir.path() / name).parent_path()));
    ASSERT_TRUE(write_file_durable(dir.path() / name, text));
  }
  TempDir dir = TempDir::make("/tmp", "space-context-test").value();
};

TEST_F(BuildContextTest, MatchesPatternsAndIgnoresWhatItIsTold) {
  put("a.txt", "a");
  put("b.txt", "b");
  put("src/main.c", "c");
  put("src/deep/main.o", "o");
  put(".dockerignore", "# what is built\n**/*.o\nb.txt\n");
  const auto context = BuildContext::open(dir.path()).value();
  EXPECT_THAT(context.match("*.txt").value(), ElementsAre("a.txt"));
  EXPECT_EQ(context.match("b.txt").error().code, "no_such_source");
  EXPECT_EQ(context.match("../x").error().code, "source_outside");
  const auto whole = context.pack("src").value();
  put("src/deep/main.o", "another");
  EXPECT_EQ(context.pack("src")->digest, whole.digest);
  put("src/main.c", "another");
  EXPECT_NE(context.pack("src")->digest, whole.digest);
}

TEST_F(BuildContextTest, FollowsNoLinkOutOfItsFolder) {
  put("inside", "x");
  std::filesystem::create_symlink("/etc", dir.path() / "out");
  const auto context = BuildContext::open(dir.path()).value();
  EXPECT_TRUE(context.pack("out"));  // the link itself
  EXPECT_EQ(context.pack("out/passwd").error().code, "source_outside");
}

}  // namespace
}  // namespace space::cli
