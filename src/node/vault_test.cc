#include "node/vault.h"

#include "snapshot/test_store.h"

namespace space::node {
namespace {

// Over a store that has no descriptors to give.
struct RemoteVault : snapshot::StoreTest {
  snapshot::BlobRef put(const std::string& bytes) { return snapshot::put_bytes(*store_, *store_->lease("acme").value(), bytes).value(); }
  std::filesystem::path folder() const { return dir_.path() / "fetched"; }
  std::unique_ptr<Vault> open() {
    const snapshot::FreezeFile freeze = [](const Fd&, bool) -> Result<> { return {}; };
    auto key = snapshot::ManifestKey::open(dir_.path() / "key").value();
    return std::make_unique<Vault>(std::make_unique<snapshot::RemoteStore>(*store_), std::move(key), freeze, folder());
  }
};

TEST_F(RemoteVault, GivesDisksToAVmmAsCheckedCopies) {
  const std::vector<snapshot::BlobRef> layers{put("below"), put("above")};
  const auto vault = open();
  const auto files = vault->layers("acme", layers);
  ASSERT_TRUE(files) << describe(files.error());
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ(read_fd((*files)[0], 1 << 20).value(), "below") << "in their order";
  EXPECT_EQ(read_fd((*files)[1], 1 << 20).value(), "above");
  EXPECT_EQ(list_directory(folder())->size(), 2u);
  EXPECT_TRUE(vault->check_layers("acme", layers));
  EXPECT_EQ(vault->layers("other", layers).error().code, "blob_missing");
}

TEST_F(RemoteVault, GivesNoDiskThatIsNotWhatItsNameSays) {
  const std::vector<snapshot::BlobRef> layers{put("right")};
  ASSERT_TRUE(write_file_durable(blob_path(layers[0]), "wrong"));
  EXPECT_EQ(open()->layers("acme", layers).error().code, "blob_corrupt");
  EXPECT_TRUE(list_directory(folder())->empty());
}

TEST_F(RemoteVault, CopiesNothingOutOfAStoreThatIsHere) {
  const std::vector<snapshot::BlobRef> layers{put("here")};
  auto key = snapshot::ManifestKey::open(dir_.path() / "key").value();
  Vault vault(std::move(store_), std::move(key), {}, folder());
  EXPECT_TRUE(vault.layers("acme", layers));
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

}  // namespace
}  // namespace space::node
