#include "snapshot/local_blob_store.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"

namespace space::snapshot {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBlobs = "blobs";
constexpr const char* kManifests = "manifests";
constexpr const char* kStaging = "staging";
constexpr const char* kData = "data";
constexpr std::size_t kManifestLimit = 4 << 20;
constexpr std::uint64_t kReserveStep = 1 << 20;
constexpr std::size_t kPrefix = 7;  // of "sha256:"

std::uint64_t stored_bytes(const struct stat& st) { return static_cast<std::uint64_t>(st.st_blocks) * 512; }

tl::unexpected<Error> missing(const std::string& digest) {
  return fail(ErrorKind::not_found, "blob_missing", fmt::format("the blob {} is not in the store", digest), "restore it from a backup");
}

// The file of a blob: itself, or `data` in a folder of its name.
Result<struct stat> find_blob(const fs::path& name, fs::path& file) {
  struct stat st {};
  file = name;
  if (::lstat(file.c_str(), &st) != 0) return fail_errno(errno, "look for a blob");
  if (S_ISDIR(st.st_mode)) {
    file = name / kData;
    if (::lstat(file.c_str(), &st) != 0) return fail_errno(errno, "look for a blob");
  }
  if (!S_ISREG(st.st_mode))
    return fail(ErrorKind::corrupt, "blob_corrupt", "something that is not a file lies in place of a blob", "remove it");
  return st;
}

// Removes a file, or a folder with `data` in it, whether that is immutable or not.
Result<> remove_staged(const fs::path& path, const FreezeFile& freeze) {
  const auto gone = [](const fs::path& file) { return ::unlink(file.c_str()) == 0 || errno == ENOENT; };
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return errno == ENOENT ? Result<>{} : fail_errno(errno, "look for an unfinished blob");
  if (!S_ISDIR(st.st_mode)) return gone(path) ? Result<>{} : fail_errno(errno, "remove a blob");
  const fs::path data = path / kData;
  if (!gone(data)) {
    if (errno != EPERM || !freeze) return fail_errno(errno, "remove a blob");
    TRY(const Fd file, open_file(data, O_RDONLY | O_NOFOLLOW));
    TRY_VOID(freeze(file, false));
    if (!gone(data)) return fail_errno(errno, "remove a blob");
  }
  if (::rmdir(path.c_str()) != 0) return fail_errno(errno, "remove a blob's folder");
  return {};
}

}  // namespace

class LocalBlobStore::LocalLease : public Lease {
 public:
  LocalLease(LocalBlobStore& store, std::string tenant, Durable durable) : store_(store), tenant_(std::move(tenant)), durable_(durable) {}
  ~LocalLease() override {
    const std::scoped_lock hold(store_.mutex_);
    Tenant& tenant = store_.tenants_[tenant_];
    for (std::string& digest : mine_) {
      if (tenant.sweeping) {
        tenant.late.push_back(std::move(digest));  // its manifest may have been published after the sweep read them
      } else {
        tenant.pins.erase(tenant.pins.find(digest));
      }
    }
  }
  const std::string& tenant() const override { return tenant_; }
  Result<> keep(const BlobRef& blob) override {
    if (!is_digest(blob.digest)) return missing(blob.digest);
    pin(blob.digest);  // first: what is looked at afterwards cannot go any more
    TRY(const auto bytes, store_.has(tenant_, blob.digest));
    if (!bytes) return missing(blob.digest);
    return {};
  }
  void pin(const std::string& digest) {
    const std::scoped_lock hold(store_.mutex_);
    store_.tenants_[tenant_].pins.insert(digest);
    mine_.push_back(digest);
  }
  Result<> settle() override {
    const std::scoped_lock one(settling_);
    std::vector<Fd> files;
    {
      const std::scoped_lock hold(store_.mutex_);
      files.swap(written_);
    }
    if (unsettled_) return fail(*unsettled_);
    if (files.empty()) return {};
    auto done = store_.sync_all(tenant_, files);
    if (!done) unsettled_ = done.error();
    return done;
  }
  // Files and folders of a blob that has its name.
  Result<> wrote(std::vector<Fd> files) {
    if (durable_ == Durable::each) return store_.sync_all(tenant_, files);
    // Begun now; waited for later.
    for (const Fd& file : files) (void)::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    const std::scoped_lock hold(store_.mutex_);
    std::move(files.begin(), files.end(), std::back_inserter(written_));
    return {};
  }

 private:
  LocalBlobStore& store_;
  std::string tenant_;
  const Durable durable_;
  std::vector<std::string> mine_;
  std::vector<Fd> written_;  // and not synced yet; under the store's mutex
  std::mutex settling_;
  std::optional<Error> unsettled_;  // under settling_
};

class LocalBlobStore::LocalWriter : public BlobWriter {
 public:
  LocalWriter(LocalBlobStore& store, LocalLease& lease, fs::path path, Fd file)
      : store_(store), lease_(lease), path_(std::move(path)), file_(std::move(file)) {}
  ~LocalWriter() override {
    if (!path_.empty()) ::unlink(path_.c_str());
    const std::scoped_lock hold(store_.mutex_);
    store_.tenants_[lease_.tenant()].reserved -= reserved_;
  }

  Result<> write(std::span<const std::byte> bytes) override {
    if (bytes_ + bytes.size() > reserved_) {
      const std::uint64_t more = (bytes_ + bytes.size() - reserved_ + kReserveStep - 1) / kReserveStep * kReserveStep;
      TRY_VOID(store_.reserve(lease_.tenant(), more));
      reserved_ += more;
    }
    TRY_VOID(pwrite_all(file_, bytes, bytes_));
    hash_.add(bytes);
    bytes_ += bytes.size();
    return {};
  }

  Result<BlobRef> commit() override {
    struct stat st {};
    if (::fstat(file_.get(), &st) != 0) return fail_errno(errno, "fstat a blob");
    BlobRef blob{digest_name(hash_.finish()), bytes_};
    lease_.pin(blob.digest);
    std::vector<Fd> written;
    written.push_back(std::move(file_));
    TRY([[maybe_unused]] const bool known, store_.settle(lease_, path_, blob, stored_bytes(st), std::move(written)));
    path_.clear();
    return blob;
  }

 private:
  LocalBlobStore& store_;
  LocalLease& lease_;
  fs::path path_;
  Fd file_;
  Sha256Stream hash_;
  std::uint64_t bytes_ = 0, reserved_ = 0;
};

class LocalBlobStore::LocalSweep : public Sweep {
 public:
  LocalSweep(LocalBlobStore& store, std::string tenant) : store_(store), tenant_(std::move(tenant)) {}
  ~LocalSweep() override {
    const std::scoped_lock hold(store_.mutex_);
    Tenant& tenant = store_.tenants_[tenant_];
    for (const std::string& digest : tenant.late) tenant.pins.erase(tenant.pins.find(digest));
    tenant.late.clear();
    tenant.sweeping = false;
  }
  Result<bool> remove(const BlobRef& blob) override {
    if (!is_digest(blob.digest)) return missing(blob.digest);
    const fs::path name = store_.folder(tenant_, kBlobs) / blob.digest.substr(kPrefix);
    const fs::path aside = store_.folder(tenant_, kStaging) / new_id();
    {
      const std::scoped_lock hold(store_.mutex_);
      TRY(Tenant * tenant, store_.counted(tenant_));
      if (tenant->pins.contains(blob.digest)) return false;
      fs::path file;
      const auto st = find_blob(name, file);
      if (::rename(name.c_str(), aside.c_str()) != 0) {
        if (errno == ENOENT) return true;
        return fail_errno(errno, "remove a blob");
      }
      if (st) tenant->used -= std::min(tenant->used, stored_bytes(*st));
    }
    TRY_VOID(remove_staged(aside, store_.options_.freeze));
    return true;
  }

 private:
  LocalBlobStore& store_;
  std::string tenant_;
};

LocalBlobStore::LocalBlobStore(fs::path root, LocalStoreOptions options, Use use, Fd lock)
    : root_(std::move(root)), options_(std::move(options)), use_(use), lock_(std::move(lock)) {}
LocalBlobStore::~LocalBlobStore() = default;

Result<std::unique_ptr<LocalBlobStore>> LocalBlobStore::open(const fs::path& root, LocalStoreOptions options, Use use) {
  Fd lock;
  if (use == Use::owner) {
    TRY_VOID(make_directories(root / "tenants"));
    TRY(lock, open_file(root / "lock", O_RDWR | O_CREAT));
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return fail_errno(errno, "lock the store");
      return fail(ErrorKind::conflict, "store_in_use", "another process writes to this store", "stop the server, or ask it to do this");
    }
    TRY_VOID(sync_directory(root));
  }
  std::unique_ptr<LocalBlobStore> store(new LocalBlobStore(root, std::move(options), use, std::move(lock)));
  if (use == Use::owner) TRY_VOID(store->clear_staging());
  return store;
}

Result<> LocalBlobStore::clear_staging() {
  TRY(const auto all, tenants());
  for (const std::string& tenant : all) {
    const auto names = list_directory(folder(tenant, kStaging));
    if (!names) continue;
    for (const std::string& name : *names) {
      if (auto removed = remove_staged(folder(tenant, kStaging) / name, options_.freeze); !removed)
        log::warn("store.leftover", {{"tenant", tenant}, {"name", name}, {"error", removed.error()}});
    }
  }
  return {};
}

Result<> LocalBlobStore::prepare(const std::string& tenant) {
  if (!is_tenant(tenant)) return fail(ErrorKind::invalid_argument, "invalid_tenant", "not the name of a tenant");
  if (use_ == Use::reader) return fail(ErrorKind::internal, "store_read_only", "this store was opened for reading");
  struct stat st {};
  if (::stat(folder(tenant, kStaging).c_str(), &st) == 0) return {};
  TRY_VOID(make_directories(folder(tenant, kBlobs)));
  TRY_VOID(make_directories(folder(tenant, kManifests)));
  TRY_VOID(make_directories(folder(tenant, kStaging)));  // last: says that the others are there
  TRY_VOID(sync_directory(root_ / "tenants" / tenant));
  return sync_directory(root_ / "tenants");
}

void LocalBlobStore::set_quota(const std::string& tenant, std::uint64_t bytes) {
  const std::scoped_lock hold(mutex_);
  tenants_[tenant].quota = bytes;
}

Result<LocalBlobStore::Tenant*> LocalBlobStore::counted(const std::string& name) {
  Tenant& tenant = tenants_[name];
  if (tenant.counted) return &tenant;
  const auto names = list_directory(folder(name, kBlobs));
  if (!names && names.error().kind != ErrorKind::not_found) return fail(names.error());
  tenant.used = 0;
  for (const std::string& blob : names.value_or(std::vector<std::string>{})) {
    fs::path file;
    if (const auto st = find_blob(folder(name, kBlobs) / blob, file)) tenant.used += stored_bytes(*st);
  }
  tenant.counted = true;
  return &tenant;
}

Result<> LocalBlobStore::refuse(const Tenant& tenant, std::uint64_t more) const {
  struct statvfs free {};
  if (::statvfs(root_.c_str(), &free) != 0) return fail_errno(errno, "ask for free space");
  const std::uint64_t quota = tenant.quota.value_or(options_.quota_bytes);
  if (quota != 0 && tenant.used + tenant.reserved + more > quota)
    return fail(
        ErrorKind::resource_exhausted, "storage_quota",
        fmt::format("the tenant's checkpoints have {} of {} bytes, and {} more are needed", tenant.used + tenant.reserved, quota, more),
        "delete checkpoints and snapshots (space checkpoints ls shows what each has of its own), or have the limit raised");
  if (options_.low_water_bytes != 0 && std::uint64_t{free.f_bavail} * free.f_frsize < options_.low_water_bytes + more)
    return fail(ErrorKind::insufficient_storage, "store_low_water", "the disk of the store is nearly full",
                "delete checkpoints, collect garbage, or add space");
  return {};
}

Result<> LocalBlobStore::reserve(const std::string& name, std::uint64_t more) {
  const std::scoped_lock hold(mutex_);
  TRY(Tenant * tenant, counted(name));
  TRY_VOID(refuse(*tenant, more));
  tenant->reserved += more;
  return {};
}

Result<> LocalBlobStore::room(const std::string& name, std::uint64_t bytes) {
  TRY_VOID(prepare(name));
  const std::scoped_lock hold(mutex_);
  TRY(const Tenant* tenant, counted(name));
  return refuse(*tenant, bytes);
}

// Side by side, since a file system makes durable together what waits together.
Result<> LocalBlobStore::sync_all(const std::string& tenant, const std::vector<Fd>& files) {
  std::vector<std::future<Result<>>> waiting;
  for (const Fd& file : files)
    waiting.push_back(std::async(options_.waiting, [&file]() -> Result<> {
      if (::fdatasync(file.get()) != 0) return fail_errno(errno, "sync a blob");
      return {};
    }));
  Result<> done = sync_directory(folder(tenant, kBlobs));
  for (auto& one : waiting)
    if (auto synced = one.get(); !synced && done) done = std::move(synced);
  return done;
}

Result<bool> LocalBlobStore::settle(LocalLease& lease, const fs::path& staged, const BlobRef& blob, std::uint64_t stored,
                                    std::vector<Fd> written) {
  const std::string& tenant = lease.tenant();
  const fs::path name = folder(tenant, kBlobs) / blob.digest.substr(kPrefix);
  // One that is there is read once more, so that bytes which come again heal what was damaged. It is pinned and stays meanwhile.
  bool known = verify_blob(*this, tenant, blob).has_value();
  {
    const std::scoped_lock hold(mutex_);
    TRY(Tenant * owner, counted(tenant));
    fs::path file;
    const auto there = find_blob(name, file);
    known = known && there;
    if (!known) {
      if (there) {  // damaged: what comes now is whole
        const fs::path aside = folder(tenant, kStaging) / new_id();
        if (::rename(name.c_str(), aside.c_str()) != 0) return fail_errno(errno, "put a damaged blob aside");
        owner->used -= std::min(owner->used, stored_bytes(*there));
      }
      if (::rename(staged.c_str(), name.c_str()) != 0) return fail_errno(errno, "name a blob");
      owner->used += stored;
    }
  }
  if (known) {  // who put it may not have come as far as its sync
    TRY_VOID(remove_staged(staged, options_.freeze));
    written.clear();
    TRY(Fd there, open_blob(tenant, blob, O_RDONLY));
    written.push_back(std::move(there));
  }
  TRY_VOID(lease.wrote(std::move(written)));
  return known;
}

Result<std::unique_ptr<Lease>> LocalBlobStore::lease(const std::string& tenant, Durable durable) {
  TRY_VOID(prepare(tenant));
  return std::make_unique<LocalLease>(*this, tenant, durable);
}

Result<std::unique_ptr<BlobWriter>> LocalBlobStore::create(Lease& lease) {
  const fs::path path = folder(lease.tenant(), kStaging) / new_id();
  TRY(Fd file, open_file(path, O_RDWR | O_CREAT | O_EXCL));
  return std::make_unique<LocalWriter>(*this, static_cast<LocalLease&>(lease), path, std::move(file));
}

// The stored blob may be this very file, kept by an attempt before; dropping the second link has thawed it for a moment.
Result<> LocalBlobStore::freeze_again(const std::string& tenant, const BlobRef& blob, const Fd& file, const FreezeFile& freeze) {
  struct stat mine = {}, kept = {};
  TRY(const Fd stored, open_blob(tenant, blob, O_RDONLY));
  if (::fstat(file.get(), &mine) != 0 || ::fstat(stored.get(), &kept) != 0) return fail_errno(errno, "fstat a blob");
  if (mine.st_ino != kept.st_ino || mine.st_dev != kept.st_dev) return {};
  TRY_VOID(freeze(file, true));
  TRY(const Sha256 digest, sha256_of_file(file));
  if (digest_name(digest) == blob.digest) return {};
  return fail(ErrorKind::corrupt, "blob_corrupt", fmt::format("the blob {} was written to while it was kept", blob.digest),
              "checkpoint again");
}

Result<BlobRef> LocalBlobStore::put_file(Lease& lease, const Fd& file, const FreezeFile& freeze) {
  auto& mine = static_cast<LocalLease&>(lease);
  const std::string& tenant = mine.tenant();
  const fs::path own = folder(tenant, kStaging) / new_id();
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return fail_errno(errno, "fstat a file to keep");
  TRY_VOID(reserve(tenant, stored_bytes(st)));
  bool frozen = false;
  auto keep = [&]() -> Result<BlobRef> {
    if (::mkdir(own.c_str(), 0700) != 0) return fail_errno(errno, "make a blob's folder");
    const fs::path data = own / kData;
    bool linked = ::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file.get()).c_str(), AT_FDCWD, data.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (linked) {
      auto done = freeze ? freeze(file, true) : fail(ErrorKind::unsupported, "freeze_unsupported", "nobody can freeze files");
      if (!done && done.error().code != "freeze_unsupported") return fail(done.error());
      frozen = done.has_value();
      if (!frozen) {
        if (::unlink(data.c_str()) != 0) return fail_errno(errno, "unlink");
        linked = false;
      }
    }
    Fd copy;
    if (!linked) {  // somebody may still write to it: what counts is the copy
      TRY(copy, open_file(data, O_RDWR | O_CREAT | O_EXCL));
      TRY_VOID(copy_file_sparse(file, copy));
    }
    const Fd& kept = linked ? file : copy;
    (void)::sync_file_range(kept.get(), 0, 0, SYNC_FILE_RANGE_WRITE);  // on its way to the disk while it is hashed
    if (::fstat(kept.get(), &st) != 0) return fail_errno(errno, "fstat a blob");
    TRY(const Sha256 digest, sha256_of_file(kept));
    BlobRef blob{digest_name(digest), static_cast<std::uint64_t>(st.st_size)};
    mine.pin(blob.digest);
    std::vector<Fd> written;
    TRY(Fd content, kept.duplicate());
    TRY(Fd place, open_file(own, O_RDONLY | O_DIRECTORY));
    written.push_back(std::move(content));
    written.push_back(std::move(place));
    TRY(const bool known, settle(mine, own, blob, stored_bytes(st), std::move(written)));
    if (known && linked) TRY_VOID(freeze_again(tenant, blob, file, freeze));
    return blob;
  };
  const std::uint64_t reserved = stored_bytes(st);
  auto result = keep();
  {
    const std::scoped_lock hold(mutex_);
    tenants_[tenant].reserved -= reserved;
  }
  if (!result) {
    if (frozen) (void)freeze(file, false);  // as it was before, so that it can be tried again
    (void)remove_staged(own, options_.freeze);
  }
  return result;
}

Result<Fd> LocalBlobStore::open_blob(const std::string& tenant, const BlobRef& blob, int flags) {
  if (!is_tenant(tenant) || !is_digest(blob.digest)) return missing(blob.digest);
  fs::path file;
  const auto st = find_blob(folder(tenant, kBlobs) / blob.digest.substr(kPrefix), file);
  if (!st && st.error().kind == ErrorKind::not_found) return missing(blob.digest);
  if (!st) return fail(st.error());
  if (static_cast<std::uint64_t>(st->st_size) != blob.bytes)
    return fail(ErrorKind::corrupt, "blob_truncated",
                fmt::format("the blob {} has {} bytes instead of {}", blob.digest, st->st_size, blob.bytes), "restore it from a backup");
  return open_file(file, flags | O_NOFOLLOW);
}

Result<> LocalBlobStore::get(const std::string& tenant, const BlobRef& blob, std::uint64_t offset, std::span<std::byte> out) {
  if (offset > blob.bytes || out.size() > blob.bytes - offset)
    return fail(ErrorKind::corrupt, "blob_truncated", "more of a blob was asked for than it has");
  TRY(const Fd file, open_blob(tenant, blob, O_RDONLY));
  return pread_all(file, out, offset);
}

Result<Fd> LocalBlobStore::descriptor(const std::string& tenant, const BlobRef& blob) { return open_blob(tenant, blob, O_RDONLY); }

Result<std::optional<std::uint64_t>> LocalBlobStore::has(const std::string& tenant, const std::string& digest) {
  if (!is_tenant(tenant) || !is_digest(digest)) return std::nullopt;
  fs::path file;
  const auto st = find_blob(folder(tenant, kBlobs) / digest.substr(kPrefix), file);
  if (!st && st.error().kind == ErrorKind::not_found) return std::nullopt;
  if (!st) return fail(st.error());
  return static_cast<std::uint64_t>(st->st_size);
}

Result<std::vector<BlobRef>> LocalBlobStore::list(const std::string& tenant) {
  std::vector<BlobRef> blobs;
  if (!is_tenant(tenant)) return blobs;
  const auto names = list_directory(folder(tenant, kBlobs));
  if (!names && names.error().kind == ErrorKind::not_found) return blobs;
  if (!names) return fail(names.error());
  for (const std::string& name : *names) {
    fs::path file;
    if (!is_digest("sha256:" + name)) continue;
    if (const auto st = find_blob(folder(tenant, kBlobs) / name, file))
      blobs.push_back({"sha256:" + name, static_cast<std::uint64_t>(st->st_size)});
  }
  return blobs;
}

Result<std::unique_ptr<Sweep>> LocalBlobStore::sweep(const std::string& tenant) {
  TRY_VOID(prepare(tenant));
  const std::scoped_lock hold(mutex_);
  if (std::exchange(tenants_[tenant].sweeping, true))
    return fail(ErrorKind::conflict, "sweep_running", "garbage of this tenant is being collected already", "wait for its end");
  return std::make_unique<LocalSweep>(*this, tenant);
}

Result<> LocalBlobStore::publish(Lease& lease, const std::string& id, std::string_view text) {
  const std::string& tenant = lease.tenant();
  if (!is_id(id)) return fail(ErrorKind::invalid_argument, "invalid_id", "not the id of a checkpoint");
  TRY_VOID(prepare(tenant));
  const fs::path aside = folder(tenant, kStaging) / new_id(), name = folder(tenant, kManifests) / id;
  auto settling = std::async(options_.waiting, [&lease] { return lease.settle(); });
  auto write = [&]() -> Result<> {
    TRY(Fd file, open_file(aside, O_WRONLY | O_CREAT | O_EXCL));
    TRY_VOID(write_all(file, text));
    if (::fdatasync(file.get()) != 0) return fail_errno(errno, "sync a manifest");
    TRY_VOID(settling.get());  // before it has its name
    if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) != 0) {
      if (errno != EEXIST) return fail_errno(errno, "name a manifest");
      return fail(ErrorKind::conflict, "manifest_exists", fmt::format("the checkpoint {} exists", id), "choose another id");
    }
    return sync_directory(folder(tenant, kManifests));
  };
  auto result = write();
  if (!result) ::unlink(aside.c_str());
  return result;
}

Result<std::string> LocalBlobStore::manifest(const std::string& tenant, const std::string& id) {
  const auto unknown = [&] { return fail(ErrorKind::not_found, "checkpoint_unknown", fmt::format("there is no checkpoint {}", id)); };
  if (!is_tenant(tenant) || !is_id(id)) return unknown();
  auto text = read_file(folder(tenant, kManifests) / id, kManifestLimit);
  if (!text && text.error().kind == ErrorKind::not_found) return unknown();
  return text;
}

Result<std::vector<std::string>> LocalBlobStore::manifests(const std::string& tenant) {
  std::vector<std::string> ids;
  if (!is_tenant(tenant)) return ids;
  const auto names = list_directory(folder(tenant, kManifests));
  if (!names && names.error().kind == ErrorKind::not_found) return ids;
  if (!names) return fail(names.error());
  for (const std::string& name : *names)
    if (is_id(name)) ids.push_back(name);
  return ids;
}

Result<> LocalBlobStore::withdraw(const std::string& tenant, const std::string& id) {
  TRY_VOID(prepare(tenant));
  if (!is_id(id)) return {};
  if (::unlink((folder(tenant, kManifests) / id).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove a manifest");
  return sync_directory(folder(tenant, kManifests));
}

Result<std::vector<std::string>> LocalBlobStore::tenants() {
  const auto names = list_directory(root_ / "tenants");
  if (!names && names.error().kind == ErrorKind::not_found) return std::vector<std::string>{};
  if (!names) return fail(names.error());
  std::vector<std::string> out;
  for (const std::string& name : *names)
    if (is_tenant(name)) out.push_back(name);
  return out;
}

Result<std::uint64_t> LocalBlobStore::used(const std::string& tenant) {
  const std::scoped_lock hold(mutex_);
  TRY(const Tenant* counts, counted(tenant));
  return counts->used;
}

}  // namespace space::snapshot
