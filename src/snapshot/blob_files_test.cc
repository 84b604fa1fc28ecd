#include "snapshot/blob_files.h"

#include <unistd.h>

#include "snapshot/test_store.h"

namespace space::snapshot {
namespace {

// A store whose bytes lie on another machine: it counts what is read from it.
class Remote : public BlobStore {
 public:
  explicit Remote(BlobStore& real) : real_(real) {}
  Result<std::unique_ptr<Lease>> lease(const std::string& t, Durable d) override { return real_.lease(t, d); }
  Result<std::unique_ptr<BlobWriter>> create(Lease& l) override { return real_.create(l); }
  Result<BlobRef> put_file(Lease& l, const Fd& f, const FreezeFile& z) override { return real_.put_file(l, f, z); }
  Result<> get(const std::string& t, const BlobRef& b, std::uint64_t at, std::span<std::byte> out) override {
    read += out.size();
    return real_.get(t, b, at, out);
  }
  Result<std::optional<std::uint64_t>> has(const std::string& t, const std::string& d) override { return real_.has(t, d); }
  Result<std::vector<BlobRef>> list(const std::string& t) override { return real_.list(t); }
  Result<std::unique_ptr<Sweep>> sweep(const std::string& t) override { return real_.sweep(t); }
  Result<Fd> descriptor(const std::string&, const BlobRef&) override { return fail(ErrorKind::unsupported, "blob_remote", "elsewhere"); }
  Result<> publish(Lease& l, const std::string& i, std::string_view x) override { return real_.publish(l, i, x); }
  Result<std::string> manifest(const std::string& t, const std::string& i) override { return real_.manifest(t, i); }
  Result<std::vector<std::string>> manifests(const std::string& t) override { return real_.manifests(t); }
  Result<> withdraw(const std::string& t, const std::string& i) override { return real_.withdraw(t, i); }
  Result<std::vector<std::string>> tenants() override { return real_.tenants(); }
  Result<std::uint64_t> used(const std::string& t) override { return real_.used(t); }
  Result<> room(const std::string& t, std::uint64_t bytes) override { return real_.room(t, bytes); }

  std::uint64_t read = 0;

 private:
  BlobStore& real_;
};

class BlobFileTest : public StoreTest {
 protected:
  BlobFileTest() : remote_(*store_) {}
  std::filesystem::path folder() const { return dir_.path() / "cache"; }
  BlobRef put(unsigned seed) { return put_bytes(*store_, *store_->lease("acme").value(), noise_page(seed)).value(); }
  static std::string content(const Fd& file) { return read_fd(file, 1 << 20).value(); }
  Remote remote_;
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
