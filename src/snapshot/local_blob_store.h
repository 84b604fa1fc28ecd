// The blob store of one machine: a folder.
//
//   lock                                      held by the process that may write (flock)
//   tenants/<tenant>/blobs/<64 hex>           a blob (one that no manifest names may be torn by a power cut: who puts the same again heals
//   it), or
//                    blobs/<64 hex>/data      a blob that was a file elsewhere before and may be immutable (see below)
//                    manifests/<id>           written last: aside, fsync, rename, fsync of the folder
//                    staging/<id>             unfinished; removed at the next start
//
// A file that is taken over cannot be renamed once it is immutable, nor can a link to it be made. So it is linked into a folder of
// its own before it is frozen, and the folder is renamed to the hash.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <set>

#include "snapshot/blob_store.h"

namespace space::snapshot {

struct LocalStoreOptions {
  std::uint64_t quota_bytes = 0;             // of each tenant's blobs as stored; 0: none
  std::uint64_t low_water_bytes = 0;         // free space of the file system below which nothing is put
  FreezeFile freeze;                         // to give immutable blobs back before they are removed; may be empty where none are made
  std::launch waiting = std::launch::async;  // how several files are waited for; deferred: one after another, by the caller's thread
};

class LocalBlobStore : public BlobStore {
 public:
  enum class Use { owner, reader };  // a reader never writes and may stand beside an owner
  // Makes the folder; an owner removes what interrupted writers left. conflict/store_in_use when another process owns it.
  static Result<std::unique_ptr<LocalBlobStore>> open(const std::filesystem::path& root, LocalStoreOptions options = {},
                                                      Use use = Use::owner);
  ~LocalBlobStore() override;

  void set_quota(const std::string& tenant, std::uint64_t bytes);  // replaces the option's for this tenant; 0: none

  Result<std::unique_ptr<Lease>> lease(const std::string& tenant, Durable durable = Durable::each) override;
  Result<std::unique_ptr<BlobWriter>> create(Lease& lease) override;
  Result<BlobRef> put_file(Lease& lease, const Fd& file, const FreezeFile& freeze) override;
  Result<> get(const std::string& tenant, const BlobRef& blob, std::uint64_t offset, std::span<std::byte> out) override;
  Result<std::optional<std::uint64_t>> has(const std::string& tenant, const std::string& digest) override;
  Result<std::vector<BlobRef>> list(const std::string& tenant) override;
  Result<std::unique_ptr<Sweep>> sweep(const std::string& tenant) override;
  Result<Fd> descriptor(const std::string& tenant, const BlobRef& blob) override;
  Result<> publish(Lease& lease, const std::string& id, std::string_view text) override;
  Result<std::string> manifest(const std::string& tenant, const std::string& id) override;
  Result<std::vector<std::string>> manifests(const std::string& tenant) override;
  Result<> withdraw(const std::string& tenant, const std::string& id) override;
  Result<std::vector<std::string>> tenants() override;
  Result<std::uint64_t> used(const std::string& tenant) override;
  Result<> room(const std::string& tenant, std::uint64_t bytes) override;

 private:
  class LocalLease;
  class LocalWriter;
  class LocalSweep;
  struct Tenant {
    std::multiset<std::string> pins;  // digests under a lease
    std::vector<std::string> late;    // let go while a sweep was under way: still pins until it ends
    bool sweeping = false;
    std::uint64_t used = 0;      // bytes of blobs, counted once at the first use and kept up to date
    std::uint64_t reserved = 0;  // bytes of writers under way
    std::optional<std::uint64_t> quota;
    bool counted = false;
  };

  LocalBlobStore(std::filesystem::path root, LocalStoreOptions options, Use use, Fd lock);
  Result<> clear_staging();
  std::filesystem::path folder(const std::string& tenant, const char* part) const { return root_ / "tenants" / tenant / part; }
  Result<> prepare(const std::string& tenant);  // its folders, durable
  Result<Fd> open_blob(const std::string& tenant, const BlobRef& blob, int flags);
  Result<> reserve(const std::string& tenant, std::uint64_t more);
  Result<> refuse(const Tenant& tenant, std::uint64_t more) const;  // under mutex_
  Result<> freeze_again(const std::string& tenant, const BlobRef& blob, const Fd& file, const FreezeFile& freeze);
  Result<Tenant*> counted(const std::string& tenant);                          // under mutex_
  Result<> sync_all(const std::string& tenant, const std::vector<Fd>& files);  // and the names of the tenant's blobs
  // Moves a finished staging file or folder to its name, or drops it when the blob is there: then true. `written`: what has to be synced
  // for it to be durable, which is done now or left to the lease.
  Result<bool> settle(LocalLease& lease, const std::filesystem::path& staged, const BlobRef& blob, std::uint64_t stored,
                      std::vector<Fd> written);

  const std::filesystem::path root_;
  const LocalStoreOptions options_;
  const Use use_;
  Fd lock_;
  std::mutex mutex_;  // guards tenants_; also every step that adds or removes a blob's name
  std::map<std::string, Tenant> tenants_;
};

}  // namespace space::snapshot
