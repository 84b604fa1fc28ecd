#include "node/record.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"

namespace space::node {
namespace {

SandboxRecord example() {
  SandboxRecord r;
  r.id = new_id();
  r.tenant = "acme";
  r.template_reference = "base";
  r.template_digest = "sha256:00";
  r.size = {2, 1024, 8192};
  r.vm = new_id();
  r.base_key = "key";
  r.epoch = 3;
  r.env = {{"A", "1"}, {"B", "line\nbreak"}};
  r.hostname = "box";
  r.machine_id = std::string(32, 'a');
  r.state = SandboxState::running;
  r.create_operation = new_id();
  r.create_spans = {{"claim", 0, 12}, {"resume", 12, 2000}};
  r.created_ms = 1'700'000'000'123;
  r.kept = R"({"metadata":{"a":"1"}})";
  r.mounts = {{new_id(), "/mnt/data"}, {new_id(), "/mnt/data/more"}};
  return r;
}

struct RecordStoreTest : ::testing::Test {
  TempDir dir = TempDir::make("/tmp", "space-record-test").value();
  RecordStore store{dir.path()};
  void SetUp() override { ASSERT_TRUE(store.open()); }
};

TEST(Record, SurvivesTheRoundTrip) {
  const SandboxRecord r = example();
  const auto back = decode_record(encode_record(r));
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(encode_record(*back), encode_record(r));
  EXPECT_EQ(back->env, r.env);
  EXPECT_EQ(back->mounts, r.mounts);
  EXPECT_EQ(back->state, SandboxState::running);
  EXPECT_EQ(back->kept, r.kept);
  EXPECT_FALSE(back->loaded || back->unfrozen) << "as in every record of before";
  SandboxRecord marked = r;
  marked.loaded = marked.unfrozen = true;
  const auto same = decode_record(encode_record(marked));
  EXPECT_TRUE(same && same->loaded && same->unfrozen);
}

TEST(Record, OneOfAnEarlierVersionKeepsNothingForTheStore) {
  SandboxRecord r = example();
  r.kept.clear();
  const std::string text = encode_record(r);
  EXPECT_EQ(text.find("\"kept\""), std::string::npos) << "so that an earlier version reads it too";
  const auto back = decode_record(text);
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(back->kept, "");
}

TEST(Record, RefusesWhatItDidNotWrite) {
  const std::string good = encode_record(example());
  EXPECT_FALSE(decode_record(""));
  EXPECT_FALSE(decode_record(good.substr(0, good.size() / 2)));
  EXPECT_FALSE(decode_record(std::string(800, '\0')));
  for (const auto& [from, to] :
       {std::pair{"\"running\"", "\"flying\""}, {"\"version\":1", "\"version\":2"}, {"\"tenant\":\"acme\"", "\"tenant\":7"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string(from).size(), to);
    const auto read = decode_record(bad);
    ASSERT_FALSE(read) << to;
    EXPECT_EQ(read.error().code, "record_unreadable");
  }
}

TEST_F(RecordStoreTest, ASandboxAppearsWholeAndGoesWhole) {
  SandboxRecord r = example();
  ASSERT_TRUE(store.make_pool_folder(r.vm));
  EXPECT_TRUE(store.sandboxes().value().empty());
  ASSERT_TRUE(store.publish(r));
  EXPECT_TRUE(store.pool().value().empty());
  auto found = store.sandboxes().value();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].record.value().vm, r.vm);
  r.state = SandboxState::paused;
  ASSERT_TRUE(store.update(r));
  EXPECT_EQ(store.sandboxes().value()[0].record.value().state, SandboxState::paused);

  ASSERT_TRUE(store.discard(r.id));
  EXPECT_TRUE(store.sandboxes().value().empty());
  EXPECT_EQ(store.trash().value().size(), 1u);
  ASSERT_TRUE(store.discard(r.id));
  ASSERT_TRUE(store.purge(r.id));
  ASSERT_TRUE(store.purge(r.id));
  EXPECT_TRUE(store.trash().value().empty());
}

TEST_F(RecordStoreTest, WhatCouldNotBeReadAgainIsNotWritten) {
  SandboxRecord r = example();
  ASSERT_TRUE(store.make_pool_folder(r.vm));
  SandboxRecord long_one = r;
  for (int i = 0; i < 9; ++i) long_one.env["V" + std::to_string(i)] = std::string(128 << 10, 'v');
  EXPECT_EQ(store.publish(long_one).error().code, "record_too_large");
  ASSERT_TRUE(store.publish(r));
  EXPECT_EQ(store.update(long_one).error().code, "record_too_large");
  const auto found = store.sandboxes().value();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].record.value().env, r.env);
}

TEST_F(RecordStoreTest, AnUnreadableRecordIsReportedNotDropped) {
  const std::string id = new_id();
  ASSERT_TRUE(make_directories(dir.path() / "sandboxes" / id));
  ASSERT_TRUE(write_file_durable(dir.path() / "sandboxes" / id / "record.json", "{\"version\":1"));
  auto found = store.sandboxes().value();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, id);
  EXPECT_EQ(found[0].record.error().code, "record_unreadable");
}

TEST_F(RecordStoreTest, NoPathIsMadeOfAnythingButAnId) {
  SandboxRecord r = example();
  r.id = "../../../../tmp/outside";
  EXPECT_EQ(store.publish(r).error().code, "invalid_id");
  EXPECT_EQ(store.update(r).error().code, "invalid_id");
  EXPECT_EQ(store.discard("..").error().code, "invalid_id");
  EXPECT_EQ(store.purge("").error().code, "invalid_id");
  EXPECT_EQ(store.make_pool_folder("a/b").error().code, "invalid_id");
}

TEST_F(RecordStoreTest, OnlyOneNodeWorksOnAFolder) {
  RecordStore second{dir.path()};
  const auto opened = second.open(std::chrono::milliseconds(0));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, "node_already_running");
}

}  // namespace
}  // namespace space::node
