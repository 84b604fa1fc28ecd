#include "snapshot/manifest.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "snapshot/test_store.h"

namespace space::snapshot {
namespace {

using Manifests = StoreTest;

TEST_F(Manifests, TellEverythingAgain) {
  const auto lease = store_->lease("acme").value();
  Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  m.id = new_id();
  m.lineage = new_id();
  m.name = "before the change";
  m.template_digest = "sha256:" + std::string(64, 'a');
  m.base_key = std::string(64, 'b');
  m.vmm_build = std::string(64, 'c');
  m.kind = CheckpointKind::suspend;
  m.own_bytes = 12345;
  m.automatic = true;
  m.settings = R"({"env":{"A":"\u0000"}})";
  m.gateway_state = put_bytes(*store_, *lease, "gateway").value();
  ASSERT_TRUE(publish_manifest(*store_, *lease, key_, m));
  EXPECT_EQ(publish_manifest(*store_, *lease, key_, m).error().code, "manifest_exists");
  const auto back = read_manifest(*store_, key_, "acme", m.id);
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(write_manifest_body(*back), write_manifest_body(m));
  EXPECT_EQ(back->memory->map.extents(), m.memory->map.extents());
  EXPECT_EQ(back->settings, m.settings);
  EXPECT_TRUE(back->automatic);
  EXPECT_EQ(blobs_of(*back).size(), 4u);
}

// An environment of the size that a create takes, of characters that JSON writes in six.
TEST_F(Manifests, HoldTheSettingsOfEverySandbox) {
  const auto lease = store_->lease("acme").value();
  Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  m.id = new_id();
  const json::object settings{{"env", json::object{{"A", std::string(128 << 10, '\x1b')}}}};
  m.settings = json::serialize(settings);
  ASSERT_GT(m.settings.size(), 768u << 10);
  const auto published = publish_manifest(*store_, *lease, key_, m);
  ASSERT_TRUE(published) << describe(published.error());
  const auto back = read_manifest(*store_, key_, "acme", m.id);
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(back->settings, m.settings);
}

TEST_F(Manifests, AMapWithManyHolesLiesInABlobOfItsOwn) {
  const auto lease = store_->lease("acme").value();
  Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  m.id = new_id();
  m.memory_mib = 64;
  MemoryState state(64 << 20);
  state.layers = m.memory->layers;
  for (std::uint64_t page = 0; page < 16384; page += 2) state.map.set(page, {PagePlace::Kind::zero, 0, 0});
  m.memory = state;
  ASSERT_TRUE(publish_manifest(*store_, *lease, key_, m));
  ASSERT_TRUE(m.map_blob);
  const auto back = read_manifest(*store_, key_, "acme", m.id);
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(back->memory->map.extents(), state.map.extents());
  EXPECT_EQ(blobs_of(*back).size(), 4u) << "layer, map, device state, disk";
  ASSERT_TRUE(write_file_durable(blob_path(*m.map_blob), std::string(m.map_blob->bytes, 'x')));
  EXPECT_EQ(read_manifest(*store_, key_, "acme", m.id).error().code, "blob_corrupt");
}

TEST_F(Manifests, WhatWasAlteredIsRefusedByName) {
  const Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  const auto path = manifest_path(m.id);
  const std::string whole = read_file(path, 1 << 20).value();
  const auto code_of = [&](const std::string& text) {
    EXPECT_TRUE(write_file_durable(path, text));
    const auto manifest = read_manifest(*store_, key_, "acme", m.id);
    return manifest ? std::string("accepted") : manifest.error().code;
  };
  EXPECT_EQ(code_of(whole), "accepted");
  EXPECT_EQ(code_of(whole.substr(0, whole.size() - 1)), "manifest_truncated");
  EXPECT_EQ(code_of(whole.substr(0, 30)), "manifest_truncated");
  EXPECT_EQ(code_of(whole + " "), "manifest_wrong_hmac");
  EXPECT_EQ(code_of(""), "manifest_damaged");
  EXPECT_EQ(code_of("space-manifest 2" + whole.substr(16)), "manifest_unknown_version");
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_TRUE(code_of(flipped).starts_with("manifest_")) << at;
  }
  EXPECT_EQ(code_of(whole), "accepted");
  // Of another tenant, of another checkpoint, of another node.
  ASSERT_TRUE(store_->publish(*store_->lease("other").value(), m.id, whole));
  EXPECT_EQ(read_manifest(*store_, key_, "other", m.id).error().code, "manifest_other_tenant");
  const std::string another = new_id();
  ASSERT_TRUE(store_->publish(*store_->lease("acme").value(), another, whole));
  EXPECT_EQ(read_manifest(*store_, key_, "acme", another).error().code, "manifest_damaged");
  const ManifestKey foreign = ManifestKey::open(dir_.path() / "foreign").value();
  EXPECT_EQ(read_manifest(*store_, foreign, "acme", m.id).error().code, "manifest_other_key");
  EXPECT_EQ(read_manifest(*store_, key_, "acme", new_id()).error().code, "checkpoint_unknown");
}

TEST_F(Manifests, WhatCouldNotBeReadAgainIsNotPublished) {
  const auto lease = store_->lease("acme").value();
  Manifest m = make_checkpoint(*store_, key_, "acme", 1).value();
  m.id = new_id();
  m.parent = "../escape";
  EXPECT_EQ(publish_manifest(*store_, *lease, key_, m).error().code, "manifest_invalid");
  m.parent.clear();
  m.device_state.reset();
  EXPECT_EQ(publish_manifest(*store_, *lease, key_, m).error().code, "manifest_invalid");
  m.device_state = BlobRef{"sha256:" + std::string(64, 'a'), 5};
  EXPECT_EQ(publish_manifest(*store_, *lease, key_, m).error().code, "blob_missing");
  m.tenant = "other";
  EXPECT_EQ(publish_manifest(*store_, *lease, key_, m).error().code, "manifest_invalid");
  EXPECT_EQ(store_->manifests("acme")->size(), 1u);
}

TEST_F(Manifests, TheKeyIsTheSameAfterARestartAndNobodyElsesToRead) {
  struct stat st {};
  ASSERT_EQ(::stat((dir_.path() / "key").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(ManifestKey::open(dir_.path() / "key")->id(), key_.id());
  ASSERT_TRUE(write_file_durable(dir_.path() / "key", "short"));
  EXPECT_EQ(ManifestKey::open(dir_.path() / "key").error().code, "manifest_key_damaged");
}

}  // namespace
}  // namespace space::snapshot
