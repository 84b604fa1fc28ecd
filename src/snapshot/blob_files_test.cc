#include "snapshot/blob_files.h"

#include <unistd.h>

#include "snapshot/test_store.h"

namespace space::snapshot {
namespace {

class BlobFileTest : public StoreTest {
 protected:
  BlobFileTest() : remote_(*store_) {}
  std::filesystem::path folder() const { return dir_.path() / "cache"; }
  BlobRef put(unsigned seed) { return put_bytes(*store_, *store_->lease("acme").value(), noise_page(seed)).value(); }
  static std::string content(const Fd& file) { return read_fd(file, 1 << 20).value(); }
  RemoteStore remote_;
};

TEST_F(BlobFileTest, AreOpenedInTheStoreOrFetchedOnce) {
  const BlobRef blob = put(1);
  BlobFiles here(*store_, folder(), 1 << 20);
  EXPECT_EQ(content(here.open("acme", blob).value()), noise_page(1));
  EXPECT_FALSE(std::filesystem::exists(folder()));
  BlobFiles files(remote_, folder(), 1 << 20);
  EXPECT_EQ(content(files.open("acme", blob).value()), noise_page(1));
  EXPECT_EQ(content(files.open("acme", blob).value()), noise_page(1));
  EXPECT_EQ(remote_.read, 4096u);
  EXPECT_EQ(::write(files.open("acme", blob)->get(), "x", 1), -1);
  EXPECT_EQ(files.open("other", blob).error().code, "blob_missing");
}

TEST_F(BlobFileTest, DamageIsFetchedAgainOrRefused) {
  const BlobRef blob = put(1);
  { ASSERT_TRUE(BlobFiles(remote_, folder(), 1 << 20).open("acme", blob)); }
  const auto file = folder() / ("acme." + blob.digest.substr(7));
  ASSERT_TRUE(write_file_durable(file, std::string(4096, 'x')));
  EXPECT_EQ(content(BlobFiles(remote_, folder(), 1 << 20).open("acme", blob).value()), noise_page(1));
  ASSERT_TRUE(write_file_durable(file, "short"));
  ASSERT_TRUE(write_file_durable(blob_path(blob), std::string(4096, 'x')));
  EXPECT_EQ(BlobFiles(remote_, folder(), 1 << 20).open("acme", blob).error().code, "blob_corrupt");
}

TEST_F(BlobFileTest, TheOnesUsedLongestAgoMakeRoom) {
  BlobFiles files(remote_, folder(), 3 * 4096);
  std::vector<BlobRef> blobs;
  for (unsigned i = 0; i < 3; ++i) {
    blobs.push_back(put(i + 1));
    ASSERT_TRUE(files.open("acme", blobs.back()));
    ::usleep(20'000);
  }
  const Fd first = files.open("acme", blobs[0]).value();  // used again
  ::usleep(20'000);
  ASSERT_TRUE(files.open("acme", put(9)));
  const auto names = list_directory(folder()).value();
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(std::count(names.begin(), names.end(), "acme." + blobs[1].digest.substr(7)), 0);
  EXPECT_EQ(content(first), noise_page(1));
  EXPECT_EQ(content(files.open("acme", blobs[1]).value()), noise_page(2)) << "fetched again";
}

}  // namespace
}  // namespace space::snapshot
