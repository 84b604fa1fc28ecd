#include "build/spec.h"

#include <gmock/gmock.h>

namespace space::build {
namespace {

using ::testing::HasSubstr;

const std::string kHash(64, 'a');

Result<Spec> read(std::string_view text) { return read_spec(parse_json_object(text).value()); }

TEST(Spec, IsReadAndWritten) {
  const auto spec = read(
      R"({"parent":"base:latest","steps":[{"type":"RUN","args":["echo hi"]},{"type":"ADD","args":["a","/b","u:g","0644"],"filesHash":")" +
      kHash + R"("},{"type":"ARG","args":["A","1"],"force":true}],"start":"s","ready":"r","cpus":2})");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->steps[1].kind, StepKind::copy);
  EXPECT_EQ(spec->steps[2].kind, StepKind::env);
  EXPECT_TRUE(spec->steps[2].force);
  const auto again = read_spec(write_spec(*spec));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(json::serialize(write_spec(*again)), json::serialize(write_spec(*spec)));
}

TEST(Spec, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"steps":[{"type":"EXPOSE","args":["80"]}]})", "step 1"},
      {R"({"steps":[{"type":"RUN","args":[]}]})", "RUN"},
      {R"({"steps":[{"type":"RUN","args":["a","-u"]}]})", "user"},
      {R"({"steps":[{"type":"COPY","args":["a","/b"]}]})", "uploaded files"},
      {R"({"steps":[{"type":"ENV","args":["A"]}]})", "pairs"},
      {R"({"steps":[{"type":"ENV","args":["1A","x"]}]})", "name"},
      {R"({"steps":[{"type":"WORKDIR","args":["a\u0000b"]}]})", "NUL"},
      {R"({"image":"x"})", "image"},
      {R"({"unknown":1})", "unknown"},
  };
  for (const auto& [text, what] : cases) {
    const auto spec = read(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_THAT(spec.error().message, HasSubstr(what)) << text;
  }
  for (const char* source : {"../x", "/etc/passwd", "a/../../b", ""}) {
    const json::object body{
        {"steps", json::array{json::object{{"type", "COPY"}, {"args", json::array{source, "/b"}}, {"filesHash", kHash}}}}};
    EXPECT_FALSE(read_spec(body)) << source;
  }
}

TEST(Spec, ExpandsVariablesAndNothingElse) {
  const std::map<std::string, std::string> env{{"A", "1"}, {"B", "$A"}};
  EXPECT_EQ(expand("$A-${A}-${C}-${C:-d}-${A:+e}", env), "1-1--d-e");
  EXPECT_EQ(expand("\\$A $B $(id) `id` $ ${x", env), "$A $A $(id) `id` $ ${x");
}

TEST(Spec, ThreadsItsContext) {
  Context context;
  const auto apply = [&](StepKind kind, std::vector<std::string> args) {
    context = after(context, Step{kind, std::move(args), "", false}).value();
  };
  apply(StepKind::workdir, {"/app"});
  apply(StepKind::workdir, {"src"});
  apply(StepKind::env, {"HERE", "/opt", "THERE", "$HERE/bin"});
  apply(StepKind::user, {"bob"});
  apply(StepKind::run, {"true"});
  EXPECT_EQ(context.workdir, "/app/src");
  EXPECT_EQ(context.env.at("THERE"), "/opt/bin");
  EXPECT_EQ(context.user, "bob");
  EXPECT_FALSE(after(context, Step{StepKind::env, {"LONG", std::string(40'000, 'x')}, "", false}));
}

TEST(Spec, KeysFollowWhatIsBelowAndWhatWasSent) {
  const Step run{StepKind::run, {"a", "b"}, "", false}, other{StepKind::run, {"a b"}, "", false};
  const std::string root = root_key("sha256:1", "", 1, 512, 4096);
  EXPECT_NE(root, root_key("sha256:2", "", 1, 512, 4096));
  EXPECT_NE(root, root_key("sha256:1", "", 1, 1024, 4096));
  EXPECT_EQ(layer_key(root, run, ""), layer_key(root, run, ""));
  EXPECT_NE(layer_key(root, run, ""), layer_key(root, other, ""));
  EXPECT_NE(layer_key(root, run, ""), layer_key(root, run, kHash));
  EXPECT_NE(layer_key(root, run, ""), layer_key(layer_key(root, run, ""), run, ""));
}

}  // namespace
}  // namespace space::build
