// What the tests of this folder share: a store in a temporary folder with checkpoints of a small memory in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"
#include "snapshot/local_blob_store.h"
#include "snapshot/manifest.h"

namespace space::snapshot {

// As the warden does it, for tests that run as root on a file system that has the flag.
inline Result<> freeze_by_flag(const Fd& file, bool immutable) {
  int flags = 0;
  if (::ioctl(file.get(), FS_IOC_GETFLAGS, &flags) != 0) return fail(ErrorKind::unsupported, "freeze_unsupported", "no flags here");
  flags = immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
  if (::ioctl(file.get(), FS_IOC_SETFLAGS, &flags) != 0) return fail(ErrorKind::unsupported, "freeze_unsupported", "no right to the flag");
  return {};
}

inline std::string noise_page(unsigned seed) {
  std::string page(kPageBytes, '\0');
  for (char& c : page) c = static_cast<char>((seed = seed * 1664525u + 1013904223u) >> 24);
  return page;
}

// A checkpoint of 1 MiB of memory in which `pages` have noise of `seed`, with device state and a disk of `disk` bytes' noise.
inline Result<Manifest> make_checkpoint(BlobStore& store, const ManifestKey& key, const std::string& tenant, unsigned seed,
                                        const MemoryState* parent = nullptr, const std::string& parent_id = {}, unsigned first = 0,
                                        unsigned pages = 40, Durable durable = Durable::each) {
  TRY(const auto lease, store.lease(tenant, durable));
  Manifest manifest;
  manifest.id = new_id();
  manifest.tenant = tenant;
  manifest.sandbox = new_id();
  manifest.parent = parent_id;
  manifest.memory_mib = 1;
  manifest.created_ms = seed;
  manifest.settings = "{}";
  MemoryState state = parent ? *parent : MemoryState(1 << 20);
  if (parent)
    for (const LayerRef& layer : state.layers) TRY_VOID(lease->keep(layer.blob));
  TRY(auto writer, LayerWriter::begin(store, *lease));
  for (unsigned page = first; page < first + pages; ++page) {
    TRY(const std::uint32_t position, writer.add(page, as_bytes(noise_page(seed + page))));
    state.map.set(page, {PagePlace::Kind::layer, static_cast<std::uint32_t>(state.layers.size()), position});
  }
  TRY(LayerRef layer, writer.finish());
  state.layers.push_back(std::move(layer));
  manifest.memory = std::move(state);
  TRY(manifest.device_state, put_bytes(store, *lease, "device state " + std::to_string(seed)));
  TRY(BlobRef disk, put_bytes(store, *lease, noise_page(seed + 7777)));
  manifest.disk.push_back({std::move(disk)});
  TRY_VOID(publish_manifest(store, *lease, key, manifest));
  return manifest;
}

// A store whose bytes lie on another machine: those of `real`, which outlives it. It counts what is read from it.
class RemoteStore : public BlobStore {
 public:
  explicit RemoteStore(BlobStore& real) : real_(real) {}
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

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() : dir_(TempDir::make("/tmp", "space-store-").value()), key_(ManifestKey::open(dir_.path() / "key").value()) { reopen(); }
  void reopen(LocalStoreOptions options = {}) {
    store_.reset();
    store_ = LocalBlobStore::open(root(), std::move(options)).value();
  }
  std::filesystem::path root() const { return dir_.path() / "store"; }
  std::filesystem::path blob_path(const BlobRef& blob, const std::string& tenant = "acme") const {
    return root() / "tenants" / tenant / "blobs" / blob.digest.substr(7);
  }
  std::filesystem::path manifest_path(const std::string& id, const std::string& tenant = "acme") const {
    return root() / "tenants" / tenant / "manifests" / id;
  }

  TempDir dir_;
  ManifestKey key_;
  std::unique_ptr<LocalBlobStore> store_;
};

}  // namespace space::snapshot
