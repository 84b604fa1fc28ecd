#include "e2b/request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "e2b/figures.h"

namespace space::e2b {
namespace {

CreateBody created(std::string_view text, bool v2 = true) {
  auto body = read_create(parse_json_object(text).value(), v2 ? 300 : 15, v2);
  EXPECT_TRUE(body) << describe(body.error());
  return body.value_or(CreateBody{});
}

std::string refused(std::string_view text) {
  const auto body = read_create(parse_json_object(text).value(), 300, true);
  return body ? "" : body.error().message;
}

http::Target target(std::string raw) { return http::parse_target(raw).value(); }

TEST(Create, TakesWhatTheSdksSend) {
  const CreateBody js = created(R"({"templateID":"base"})");
  EXPECT_EQ(js.settings.timeout_s, 300);
  EXPECT_TRUE(js.settings.secure);
  EXPECT_FALSE(js.settings.internet);
  const CreateBody python = created(
      R"({"templateID":"base","metadata":{},"envVars":{"A":"b"},"timeout":60,"secure":true,"allow_internet_access":true,"autoPause":false,"mcp":null})",
      false);
  EXPECT_EQ(python.settings.timeout_s, 60);
  EXPECT_EQ(python.env.at("A"), "b");
  EXPECT_TRUE(python.settings.internet.value());
  EXPECT_FALSE(created(R"({"templateID":"base"})", false).settings.secure);
}

TEST(Create, RefusesWhatCannotBe) {
  EXPECT_EQ(refused(R"({"templateID":"base","timeout":0})"), "Timeout must be greater than 0");
  EXPECT_NE(refused(R"({"templateID":"base","timeout":99999999})").find("Timeout cannot be greater than"), std::string::npos);
  EXPECT_NE(refused(R"({"templateID":"base","autoPauseMemory":false})"), "");
  EXPECT_NE(refused(R"({"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}})"), "");
  EXPECT_NE(refused(R"({"templateID":"base","iam":{"tokens":{"t":{}}}})").find("identities"), std::string::npos);
  EXPECT_NE(refused(R"({"templateID":"base","network":{"egressProxy":{"address":"a:1"}}})").find("proxy"), std::string::npos);
  EXPECT_EQ(refused(R"({"templateID":"base","network":{"httpsPorts":[]}})"), "");
  for (const char* ports : {"[0]", "[65536]", "[-1]", "[49983]", "[3000,49983]", "[\"3000\"]", "[3000.0]", "3000", "{}"})
    EXPECT_NE(refused(std::string(R"({"templateID":"base","network":{"httpsPorts":)") + ports + "}}").find("httpsPorts"), std::string::npos)
        << ports;
  EXPECT_NE(refused(R"({})"), "");
  EXPECT_NE(refused(R"({"templateID":"base","envVars":{"A=B":"c"}})"), "");
}

TEST(Create, LabelsOfTheServerAreNotTaken) {
  const auto body = read_create(parse_json_object(R"({"templateID":"base","metadata":{"space.kind":"volume"}})").value(), 300, true);
  ASSERT_FALSE(body);
  EXPECT_EQ(body.error().code, "label_reserved");
  EXPECT_EQ(created(R"({"templateID":"base","metadata":{"space":"1","Space.x":"2"}})").metadata.size(), 2u);
}

TEST(Create, AnEnvironmentHasItsLimitHereToo) {
  const auto with = [](int variables) {
    std::string env;
    for (int i = 0; i < variables; ++i) env += fmt::format(R"({}"V{}":"{}")", i > 0 ? "," : "", i, std::string(32 << 10, 'v'));
    return R"({"templateID":"base","envVars":{)" + env + "}}";
  };
  EXPECT_EQ(created(with(3).c_str()).env.size(), 3u);
  EXPECT_NE(refused(with(5).c_str()).find("envVars"), std::string::npos);
}

TEST(Create, VolumesHaveCleanPathsOfTheirOwn) {
  const auto with = [](const std::string& mounts) { return R"({"templateID":"base","volumeMounts":)" + mounts + "}"; };
  const CreateBody body = created(with(R"([{"name":"v","path":"/mnt/a"},{"name":"v","path":"/mnt/b.c/d","volume":"made-up"}])").c_str());
  ASSERT_EQ(body.settings.mounts.size(), 2u);
  EXPECT_EQ(body.settings.mounts[1].path, "/mnt/b.c/d");
  EXPECT_EQ(body.settings.mounts[1].volume, "");  // looked up here, not said by a client
  EXPECT_TRUE(created(with("[]").c_str()).settings.mounts.empty());
  EXPECT_TRUE(created(with("null").c_str()).settings.mounts.empty());
  for (const char* path : {"mnt", "/", "/mnt/", "//mnt", "/mnt//a", "/mnt/../a", "/./mnt", "/etc", "/proc/1", "/usr/local"})
    EXPECT_NE(refused(with(std::string(R"([{"name":"v","path":")") + path + "\"}]").c_str()).find("mounted"), std::string::npos) << path;
  EXPECT_NE(refused(with(R"([{"name":"v","path":"/a"},{"name":"w","path":"/a"}])").c_str()).find("twice"), std::string::npos);
  EXPECT_NE(refused(with(R"([{"name":"v","path":"/a/b"},{"name":"w","path":"/a"}])").c_str()).find("in another"), std::string::npos);
  EXPECT_EQ(refused(with(R"([{"name":"v","path":"/a/b"},{"name":"w","path":"/a/bc"}])").c_str()), "");
  for (const char* wrong : {"{}", "[1]", R"([{"name":"v"}])", R"([{"path":"/a"}])", R"([{"name":"","path":"/a"}])"})
    EXPECT_NE(refused(with(wrong).c_str()), "") << wrong;
}

TEST(Create, OptionsComeBackFromTheStore) {
  const CreateBody body = created(
      R"({"templateID":"base","autoPause":true,"autoResume":{"enabled":true},"network":{"allowPublicTraffic":false,"maskRequestHost":"x:${PORT}"}})");
  const auto back = decode_settings(encode(body.settings));
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->auto_pause && back->auto_resume && !back->public_traffic);
  EXPECT_EQ(back->mask_host, "x:${PORT}");
  EXPECT_TRUE(decode_settings("")->secure);
  EXPECT_FALSE(speaks_tls(*back, 3000));
  const CreateBody secure = created(R"({"templateID":"base","network":{"httpsPorts":[3000,65535]}})");
  const auto kept = decode_settings(encode(secure.settings));
  ASSERT_TRUE(kept);
  EXPECT_TRUE(speaks_tls(*kept, 3000) && speaks_tls(*kept, 65535) && !speaks_tls(*kept, 3001));
  Settings mounted;
  mounted.mounts = {{"name", "/path", "abcdefghijklmnopqrstuvwx"}};
  const auto again = decode_settings(encode(mounted));
  ASSERT_TRUE(again && again->mounts.size() == 1);
  EXPECT_EQ(again->mounts[0].volume, mounted.mounts[0].volume);
}

TEST(Names, OfTemplates) {
  EXPECT_EQ(template_reference("base").value(), "base:latest");
  EXPECT_EQ(template_reference(" NS/Base:default ").value(), "base:latest");
  EXPECT_EQ(template_reference("x:v1.2").value(), "x:v1.2");
  for (const char* wrong : {"", ":x", "name:", "a b", "a/b/c", "ä"}) EXPECT_FALSE(template_reference(wrong)) << wrong;
  EXPECT_EQ(template_id_of("base:latest"), "base");
  EXPECT_EQ(template_id_of("base:v1"), "base:v1");
}

TEST(Names, OfSandboxes) {
  EXPECT_EQ(sandbox_id("iabc123-old").value(), "iabc123");
  for (const char* wrong : {"", "-x", "A", "a.b", "a/b"}) EXPECT_FALSE(sandbox_id(wrong)) << wrong;
}

TEST(List, ReadsTheSdksQuery) {
  const auto list =
      read_list(target("/v2/"
                       "sandboxes?metadata=k%252520ey%3Dv%252526l&state=running,paused&startedAfter=1970-01-01T00%3A00%3A01.5Z&template="
                       "base&order=asc&limit=500"));
  ASSERT_TRUE(list);
  EXPECT_EQ(list->metadata, (std::map<std::string, std::string>{{"k ey", "v&l"}}));
  EXPECT_EQ(list->started_after_us, 1'500'000);
  EXPECT_TRUE(list->ascending);
  EXPECT_EQ(list->limit, 100u);
  EXPECT_FALSE(read_list(target("/v2/sandboxes?state=paused"))->running);
  for (const char* wrong : {"?order=up", "?limit=0", "?state=gone", "?template=a:b", "?startedAfter=now", "?nextToken=x", "?metadata=%25"})
    EXPECT_FALSE(read_list(target(std::string("/v2/sandboxes") + wrong))) << wrong;
}

TEST(List, TokensLeadOn) {
  const auto list = read_list(target("/v2/sandboxes?nextToken=" + next_token(123, "iabc")));
  EXPECT_EQ(list->after, (std::pair<std::int64_t, std::string>(123, "iabc")));
}

TEST(Figures, WhatTheGuestCannotTellIsNull) {
  const auto all = read_figures(
      R"({"ts":1,"cpu_count":2,"cpu_used_pct":12.5,"mem_total":9,"mem_used":4,"mem_cache":1,"disk_used":7,"disk_total":1099511627776})");
  ASSERT_TRUE(all) << describe(all.error());
  EXPECT_EQ(all->at("diskTotal"), 1'099'511'627'776);
  EXPECT_EQ(all->at("cpuUsedPct"), 12.5);
  const auto some = read_figures(R"({"cpu_count":2,"cpu_used_pct":null,"disk_used":null,"disk_total":null})");
  ASSERT_TRUE(some) << describe(some.error());
  for (const char* name : {"cpuUsedPct", "diskUsed", "diskTotal", "memTotal"}) EXPECT_TRUE(some->at(name).is_null()) << name;
  for (const char* wrong : {"", "[]", R"({"cpu_used_pct":"1"})", R"({"cpu_used_pct":101})", R"({"cpu_used_pct":-1})", R"({"disk_used":-1})",
                            R"({"mem_total":1.5})"})
    EXPECT_FALSE(read_figures(wrong)) << wrong;
}

TEST(Time, IsReadWithItsOffset) {
  EXPECT_EQ(parse_time("1970-01-02T00:00:00Z"), 86'400'000'000);
  EXPECT_EQ(parse_time("1970-01-01T01:00:00.000001+01:00"), 1);
  for (const char* wrong :
       {"", "1970-01-01", "1970-13-01T00:00:00Z", "1970-01-01T00:00:00", "1970-01-01T00:00:00.Z", "1970-01-01T24:00:00Z"})
    EXPECT_FALSE(parse_time(wrong)) << wrong;
}

}  // namespace
}  // namespace space::e2b
