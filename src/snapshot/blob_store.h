// Where checkpoints are kept: blobs (immutable bytes named by their SHA-256) and manifests (small texts that say which blobs make
// a checkpoint). Callers see names and bytes, never a path, so that a folder and an object store serve alike.
//
// Same bytes are stored once within a tenant, never across tenants. A blob that no manifest names is garbage and goes at the next
// collection, unless somebody holds a lease on it: whoever makes a checkpoint takes a lease first, puts the blobs, publishes the
// manifest, and lets the lease go. So a collection at any moment, and a crash at any moment, is harmless.
//
// All calls block (use a pool) and may come from any thread. A writer belongs to one thread at a time; several may put under one lease.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space::snapshot {

struct BlobRef {
  std::string digest;       // "sha256:<64 hex>"
  std::uint64_t bytes = 0;  // its length
  bool operator==(const BlobRef&) const = default;
};

bool is_digest(std::string_view text);  // "sha256:" and 64 lower-case hex digits
bool is_tenant(std::string_view text);  // [A-Za-z0-9_-]{1,64}

// When what is put under a lease is durable.
enum class Durable {
  each,      // when its put returns
  together,  // when Lease::settle() returns: many files wait for the disk once. publish() does that before the manifest has its name
};

// Keeps blobs of one tenant from being collected for as long as it lives; must not outlive its store.
class Lease {
 public:
  virtual ~Lease() = default;
  virtual const std::string& tenant() const = 0;
  // A blob that exists already and that the new manifest will name. not_found/blob_missing when it is not there (any more).
  virtual Result<> keep(const BlobRef& blob) = 0;
  // Everything that was put under it is durable when this returns. After an error it never is: put it again under another.
  virtual Result<> settle() = 0;
};

// One blob in the making. Without commit() nothing of it stays.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  // insufficient_storage/store_low_water or resource_exhausted/storage_quota when there is no room.
  virtual Result<> write(std::span<const std::byte> bytes) = 0;
  virtual Result<BlobRef> commit() = 0;  // once; durable as its lease says
};

// Takes the right to write a file away from everybody, descriptors that are open included (the warden's freeze_file), or gives it
// back. An error with the code freeze_unsupported makes the store copy instead.
using FreezeFile = std::function<Result<>(const Fd& file, bool immutable)>;

// The right to remove blobs of one tenant. A blob under a lease at any moment since this was made is refused, so the order is:
// begin a sweep, read the manifests, remove what they do not name. One sweep a tenant at a time.
class Sweep {
 public:
  virtual ~Sweep() = default;
  virtual Result<bool> remove(const BlobRef& blob) = 0;  // false: a lease holds it
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  virtual Result<std::unique_ptr<Lease>> lease(const std::string& tenant, Durable durable = Durable::each) = 0;
  virtual Result<std::unique_ptr<BlobWriter>> create(Lease& lease) = 0;
  // A whole file whose writer may still have it open (a VMM, its overlay): frozen before it is hashed, taken over without a copy
  // where the store can, else copied with its holes. `file` is open for writing.
  virtual Result<BlobRef> put_file(Lease& lease, const Fd& file, const FreezeFile& freeze) = 0;
  // Fills `out` from `offset`. not_found/blob_missing, corrupt/blob_truncated. Content is the reader's to check.
  virtual Result<> get(const std::string& tenant, const BlobRef& blob, std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual Result<std::optional<std::uint64_t>> has(const std::string& tenant, const std::string& digest) = 0;  // its length
  virtual Result<std::vector<BlobRef>> list(const std::string& tenant) = 0;
  virtual Result<std::unique_ptr<Sweep>> sweep(const std::string& tenant) = 0;
  // A read-only descriptor of the stored bytes, where they lie on this machine; unsupported/blob_remote elsewhere (see BlobFiles).
  virtual Result<Fd> descriptor(const std::string& tenant, const BlobRef& blob) = 0;

  // A manifest of the lease's tenant appears whole and durable, or not at all, and not before all that was put under the lease is durable.
  // conflict/manifest_exists when there is one. `id` is a base id.
  virtual Result<> publish(Lease& lease, const std::string& id, std::string_view text) = 0;
  virtual Result<std::string> manifest(const std::string& tenant, const std::string& id) = 0;  // not_found/checkpoint_unknown
  virtual Result<std::vector<std::string>> manifests(const std::string& tenant) = 0;           // ids
  virtual Result<> withdraw(const std::string& tenant, const std::string& id) = 0;             // durable; nothing there is success

  virtual Result<std::vector<std::string>> tenants() = 0;
  virtual Result<std::uint64_t> used(const std::string& tenant) = 0;  // bytes of its blobs, as stored
  // Whether so many bytes more would be taken now: storage_quota or store_low_water, as a put would answer. Keeps nothing free.
  virtual Result<> room(const std::string& tenant, std::uint64_t bytes) = 0;
};

// The bytes of a small blob at once; corrupt/blob_corrupt when they are not what its name says. `limit` in bytes.
Result<std::string> read_blob(BlobStore& store, const std::string& tenant, const BlobRef& blob, std::uint64_t limit);
Result<BlobRef> put_bytes(BlobStore& store, Lease& lease, std::string_view bytes);
// Reads all of it and compares with its name: blob_missing, blob_truncated, blob_corrupt.
Result<> verify_blob(BlobStore& store, const std::string& tenant, const BlobRef& blob);

}  // namespace space::snapshot
