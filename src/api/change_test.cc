// PATCH of a sandbox: what a body may say, what node is told of it, what is kept.
#include <gtest/gtest.h>

#include "api/request.h"
#include "api/testing.h"

namespace space::api {
namespace {

using testing::Answer;
using testing::ApiTest;
using testing::text;

Result<UpdateBody> read(const char* body) { return read_update(parse_json_object(body).value()); }

TEST(UpdateBody, WhatIsNamedIsSetAndNullTakesAway) {
  const auto body = read(
      R"({"env":{"A":"1","B":null},"metadata":{"m":null,"n":""},"time_limit_s":null,"idle_pause_s":5,"idle_cpu_percent":40,"at_time_limit":"suspend","cpus":2})");
  ASSERT_TRUE(body) << describe(body.error());
  const control::SandboxUpdate& update = body->update;
  EXPECT_EQ(update.env, (control::TextChanges{{"A", "1"}, {"B", std::nullopt}}));
  EXPECT_EQ(update.metadata, (control::TextChanges{{"m", std::nullopt}, {"n", ""}}));
  EXPECT_EQ(update.time_limit_s, 0);
  EXPECT_EQ(update.idle_pause_s, 5);
  EXPECT_FALSE(update.idle_suspend_s);
  EXPECT_EQ(update.idle_cpu_percent, 40);
  EXPECT_EQ(read(R"({"idle_cpu_percent":null})")->update.idle_cpu_percent, control::kIdleCpuPercent);
  EXPECT_EQ(update.suspend_at_limit, true);
  EXPECT_EQ(update.cpus, 2);
  EXPECT_FALSE(update.memory_mib);
  EXPECT_FALSE(body->egress);
  const auto back = control::decode_update(control::encode(update));
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(control::encode(*back), control::encode(update));
  EXPECT_EQ(json::serialize(control::node_part(*back)), R"({"env":{"A":"1","B":null},"cpus":2})");
  EXPECT_TRUE(read("{}")->update.empty());
  EXPECT_TRUE(read(R"({"egress":null})")->egress);
}

TEST(UpdateBody, WhatACreateRefusesIsRefusedHereToo) {
  for (const char* bad :
       {R"({"nonsense":1})", R"({"template":"base"})", R"({"checkpoint":"aaaaaaaaaaaaaaaaaaaaaaaa"})", R"({"disk_mib":8192})",
        R"({"cpus":0})", R"({"cpus":null})", R"({"memory_mib":null})", R"({"env":{"1":"x"}})", R"({"env":{"=":null}})", R"({"env":"A"})",
        R"({"metadata":{"":"x"}})", R"({"metadata":{"m":1}})", R"({"time_limit_s":0})", R"({"idle_cpu_percent":0})",
        R"({"idle_cpu_percent":101})", R"({"idle_cpu_percent":"5"})", R"({"at_time_limit":"explode"})"})
    EXPECT_FALSE(read(bad)) << bad;
}

TEST_F(ApiTest, AnUpdateIsAnOperationThatNodeAndStoreShare) {
  const std::string id = running();
  const Answer done =
      send_with("PATCH", "/v1/sandboxes/" + id, R"({"env":{"A":"secret"},"metadata":{"m":"1"},"time_limit_s":60})", {{"Prefer", "wait=5"}});
  ASSERT_EQ(done.status, 200) << done.text;
  EXPECT_EQ(text(done.at("operation"), "kind"), "update");
  EXPECT_EQ(text(done.at("operation"), "state"), "succeeded");
  EXPECT_EQ(done.text.find("secret"), std::string::npos) << "what is in an environment is shown to nobody";
  ASSERT_EQ(fake_.count("UPDATE"), 1u);
  EXPECT_NE(fake_.calls.back().find(R"("env":{"A":"secret"})"), std::string::npos) << fake_.calls.back();
  EXPECT_EQ(fake_.calls.back().find("metadata"), std::string::npos);
  const Answer now = send("GET", "/v1/sandboxes/" + id);
  EXPECT_EQ(text(now.at("metadata"), "m"), "1");
  EXPECT_TRUE(now.body.contains("ends_at"));
  EXPECT_EQ(send("PATCH", "/v1/sandboxes/" + id, R"({"cpus":7})").code(), "size_in_memory");
}

// Also while nothing else is said of its rest: what is said later goes by it.
TEST_F(ApiTest, WhatAGuestMayComputeWhileItIsIdleIsKept) {
  const auto shown = [&](const std::string& id) {
    const json::object now = send("GET", "/v1/sandboxes/" + id).body;
    return now.contains("idle_cpu_percent") ? now.at("idle_cpu_percent").as_int64() : 0;
  };
  EXPECT_EQ(shown(running()), 0);
  EXPECT_EQ(shown(running(R"({"idle_cpu_percent":null})")), 0);
  const std::string id = running(R"({"idle_cpu_percent":40})");
  EXPECT_EQ(shown(id), 40);
  EXPECT_EQ(send_with("PATCH", "/v1/sandboxes/" + id, R"({"idle_suspend_s":60})", {{"Prefer", "wait=5"}}).status, 200);
  restart();
  EXPECT_EQ(shown(id), 40);
  EXPECT_EQ(send_with("PATCH", "/v1/sandboxes/" + id, R"({"idle_cpu_percent":null})", {{"Prefer", "wait=5"}}).status, 200);
  EXPECT_EQ(shown(id), 0);
  EXPECT_EQ(send("POST", "/v1/sandboxes", R"({"idle_cpu_percent":101})").code(), "invalid_field");
}

TEST_F(ApiTest, LabelsOfTheServerAreNobodysToSay) {
  const std::string id = running(R"({"metadata":{"spacecraft":"1","my.space.kind":"2"}})");
  const std::size_t before = fake_.calls.size();
  const auto refused = [&](std::string method, std::string target, std::string body) {
    const Answer answer = send(std::move(method), std::move(target), std::move(body));
    EXPECT_EQ(answer.status, 400) << answer.text;
    EXPECT_NE(text(answer.body, "detail").find("space."), std::string::npos);
    EXPECT_FALSE(text(answer.body, "next").empty());
    return answer.code();
  };
  EXPECT_EQ(refused("POST", "/v1/sandboxes", R"({"metadata":{"a":"b","space.kind":"volume"}})"), "label_reserved");
  EXPECT_EQ(refused("POST", "/v1/sandboxes/" + id + "/fork", R"({"metadata":{"space.build":"x"}})"), "label_reserved");
  EXPECT_EQ(refused("PATCH", "/v1/sandboxes/" + id, R"({"metadata":{"space.":"x"}})"), "label_reserved");
  EXPECT_EQ(refused("PATCH", "/v1/sandboxes/" + id, R"({"metadata":{"space.kind":null}})"), "label_reserved");
  EXPECT_EQ(fake_.calls.size(), before);
}

TEST_F(ApiTest, AVolumeIsASandboxThatListsLeaveOut) {
  for (const char* wrong : {"{}", R"({"name":""})", R"({"name":"a b"})", R"({"name":"../x"})", R"({"name":7})", R"({"name":"v","size":1})"})
    EXPECT_EQ(send("POST", "/v1/volumes", wrong).code(), "invalid_field") << wrong;
  const auto make = [&](const char* key) {
    return send_with("POST", "/v1/volumes", R"({"name":"v"})", {{"Prefer", "wait=10"}, {"Idempotency-Key", key}});
  };
  const Answer made = make("one");
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_EQ(json::serialize(made.at("sandbox").at("metadata")), R"({"space.kind":"volume","space.volume":"v"})");
  EXPECT_EQ(make("one").text, made.text) << "the same request again";
  const Answer second = make("two");
  EXPECT_EQ(second.status, 409);
  EXPECT_EQ(second.code(), "volume_exists");
  EXPECT_EQ(send("GET", "/v1/sandboxes").body.at("sandboxes").as_array().size(), 0u);
  EXPECT_EQ(send("GET", "/v1/sandboxes?metadata.space.kind=volume").body.at("sandboxes").as_array().size(), 1u);
  EXPECT_EQ(fake_.count("PUT"), 1u);
}

TEST_F(ApiTest, AnUpdateThatNodeRefusesChangesNothing) {
  const std::string id = running();
  fake_.fail_with = Error{ErrorKind::conflict, "size_in_memory", "not now", "stop it first"};
  const Answer refused = send_with("PATCH", "/v1/sandboxes/" + id, R"({"metadata":{"m":"1"}})", {{"Prefer", "wait=5"}});
  EXPECT_EQ(refused.code(), "size_in_memory");
  EXPECT_FALSE(send("GET", "/v1/sandboxes/" + id).at("metadata").contains("m"));
}

}  // namespace
}  // namespace space::api
