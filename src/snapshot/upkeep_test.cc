#include "snapshot/upkeep.h"

#include <sys/stat.h>
#include <unistd.h>

#include "snapshot/test_store.h"

namespace space::snapshot {
namespace {

using Upkeep = StoreTest;

std::vector<std::string> codes(const Verification& found) {
  std::vector<std::string> out;
  for (const StoreFault& fault : found.faults) out.push_back(fault.error.code);
  return out;
}

TEST_F(Upkeep, GarbageIsWhatNoManifestNames) {
  const Manifest parent = make_checkpoint(*store_, key_, "acme", 1).value();
  const Manifest child = make_checkpoint(*store_, key_, "acme", 500, &*parent.memory, parent.id, 10, 20).value();
  EXPECT_TRUE(find_garbage(*store_, key_, "acme")->blobs.empty());
  { ASSERT_TRUE(put_bytes(*store_, *store_->lease("acme").value(), "of nobody")); }
  EXPECT_EQ(find_garbage(*store_, key_, "acme")->bytes, 9u);
  const std::string nobodys = find_garbage(*store_, key_, "acme")->blobs[0].digest;
  EXPECT_TRUE(
      find_garbage(*store_, key_, "acme", digests_in(R"({"layers":[{"digest":")" + nobodys + R"("},"sha256:short"]})"))->blobs.empty());
  // The parent goes; its layer stays, since the child's map still names it.
  ASSERT_TRUE(store_->withdraw("acme", parent.id));
  const auto listed = find_garbage(*store_, key_, "acme").value();
  EXPECT_EQ(listed.blobs.size(), 3u) << "of nobody, the parent's device state and disk";
  EXPECT_EQ(listed.removed_bytes, 0u);
  const auto collected = collect_garbage(*store_, key_, "acme").value();
  EXPECT_EQ(collected.removed_bytes, listed.bytes);
  EXPECT_TRUE(store_->has("acme", parent.memory->layers[0].blob.digest).value());
  EXPECT_TRUE(verify_store(*store_, key_)->faults.empty());
  ASSERT_TRUE(store_->withdraw("acme", child.id));
  ASSERT_TRUE(collect_garbage(*store_, key_, "acme"));
  EXPECT_TRUE(store_->list("acme")->empty());
  EXPECT_EQ(store_->used("acme").value(), 0u);
}

TEST_F(Upkeep, ACheckpointTakenMeanwhileKeepsItsBlobs) {
  auto lease = store_->lease("acme").value();
  const BlobRef early = put_bytes(*store_, *lease, "put before the collection").value();
  EXPECT_EQ(collect_garbage(*store_, key_, "acme")->removed_bytes, 0u);
  Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  m.id = new_id();
  m.gateway_state = early;
  ASSERT_TRUE(publish_manifest(*store_, *lease, key_, m));
  lease.reset();
  EXPECT_TRUE(collect_garbage(*store_, key_, "acme")->blobs.empty());
  EXPECT_TRUE(verify_store(*store_, key_)->faults.empty());
}

TEST_F(Upkeep, NothingIsCollectedWhileAManifestCannotBeRead) {
  const Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  ASSERT_TRUE(write_file_durable(manifest_path(m.id), "space-manifest 9 x"));
  EXPECT_FALSE(collect_garbage(*store_, key_, "acme"));
  EXPECT_EQ(store_->list("acme")->size(), 3u);
}

TEST_F(Upkeep, VerifyFindsEachFaultAndNamesIt) {
  const Manifest a = make_checkpoint(*store_, key_, "acme", 1).value();
  const Manifest b = make_checkpoint(*store_, key_, "other", 2).value();
  { ASSERT_TRUE(put_bytes(*store_, *store_->lease("acme").value(), "of nobody")); }
  auto found = verify_store(*store_, key_).value();
  EXPECT_EQ(found.checkpoints, 2u);
  EXPECT_EQ(found.blobs, 6u);
  EXPECT_EQ(found.unnamed_blobs, 1u);
  EXPECT_TRUE(found.faults.empty());
  const auto layer = blob_path(a.memory->layers[0].blob);
  std::string content = read_file(layer, 1 << 20).value();
  content[4] = static_cast<char>(content[4] ^ 64);
  ASSERT_TRUE(write_file_durable(layer, content));
  ASSERT_EQ(::unlink(blob_path(b.disk[0].blob, "other").c_str()), 0);
  found = verify_store(*store_, key_).value();
  EXPECT_EQ(codes(found), (std::vector<std::string>{"blob_corrupt", "blob_missing"}));
  EXPECT_EQ(found.faults[1].tenant, "other");
  EXPECT_EQ(found.faults[1].checkpoint, b.id);
}

TEST_F(Upkeep, ABackupIsVerifiedAndComesBackUnderAnotherKey) {
  const Manifest parent = make_checkpoint(*store_, key_, "acme", 1).value();
  const Manifest child = make_checkpoint(*store_, key_, "acme", 500, &*parent.memory, parent.id, 10, 20).value();
  const Manifest other = make_checkpoint(*store_, key_, "other", 9).value();
  const ManifestKey away_key = ManifestKey::open(dir_.path() / "away.key").value();
  auto away = LocalBlobStore::open(dir_.path() / "away").value();
  auto copied = copy_store(*store_, key_, *away, away_key);
  ASSERT_TRUE(copied) << describe(copied.error());
  EXPECT_EQ(copied->checkpoints, 3u);
  EXPECT_EQ(copied->blobs, 9u) << "the parent's layer once";
  EXPECT_EQ(copy_store(*store_, key_, *away, away_key)->checkpoints, 0u) << "again copies nothing";
  ASSERT_TRUE(remove_tree(root()));
  reopen();
  ASSERT_TRUE(copy_store(*away, away_key, *store_, key_));
  const auto back = read_manifest(*store_, key_, "acme", child.id);
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(write_manifest_body(*back), write_manifest_body(child));
  EXPECT_TRUE(verify_store(*store_, key_)->faults.empty());
  // A damaged backup is not restored.
  ASSERT_TRUE(remove_tree(root()));
  reopen();
  const auto file = dir_.path() / "away/tenants/other/blobs" / other.disk[0].blob.digest.substr(7);
  const auto broken = std::filesystem::is_directory(file) ? file / "data" : file;
  ASSERT_TRUE(write_file_durable(broken, std::string(4096, 'x')));
  EXPECT_EQ(copy_store(*away, away_key, *store_, key_).error().code, "blob_corrupt");
  EXPECT_EQ(store_->manifests("other")->size(), 0u);
}

TEST(RetentionRule, KeepsTheNewestTheYoungTheNamedAndTheSuspended) {
  const std::int64_t day = 86'400'000;
  std::vector<CheckpointAge> all;
  for (int i = 0; i < 6; ++i) all.push_back({"c" + std::to_string(i), "s", CheckpointKind::checkpoint, i * day, i == 0});
  all.push_back({"z", "s", CheckpointKind::suspend, 0, false});
  all.push_back({"f", "s", CheckpointKind::file_snapshot, 0, false});
  all.push_back({"t", "other", CheckpointKind::checkpoint, 0, false});
  const auto ids = [&](RetentionRules rules) {
    auto out = expired(all, rules, 6 * day);
    std::sort(out.begin(), out.end());
    return out;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(ids({}), List{});
  EXPECT_EQ(ids({{2, 0, false}, {}}), (List{"c1", "c2", "c3"}));
  EXPECT_EQ(ids({{1, 4 * day, false}, {}}), (List{"c1", "c2"}));
  EXPECT_EQ(ids({{0, 4 * day, true}, {}}), (List{"c0", "c1", "c2", "t"}));
  EXPECT_EQ(ids({{}, {0, day, false}}), (List{"f"}));
}

}  // namespace
}  // namespace space::snapshot
