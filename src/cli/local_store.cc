#include "cli/local_store.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/exit_status.h"
#include "cli/local_needs.h"
#include "snapshot/local_blob_store.h"
#include "snapshot/upkeep.h"
#include "template/base_upkeep.h"

namespace space::cli {
namespace {
namespace fs = std::filesystem;
using snapshot::LocalBlobStore;
using snapshot::ManifestKey;

struct Opened {
  std::unique_ptr<LocalBlobStore> store;
  ManifestKey key;
};

// As the warden does it for node; here it is only ever taken away, from blobs that are removed.
Result<> thaw(const Fd& file, bool immutable) {
  int flags = 0;
  if (::ioctl(file.get(), FS_IOC_GETFLAGS, &flags) != 0) return fail_errno(errno, "read a file's flags");
  flags = immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
  if (::ioctl(file.get(), FS_IOC_SETFLAGS, &flags) != 0) return fail_errno(errno, "set a file's flags");
  return {};
}

Result<Opened> open_server_store(const StoreOptions& options, LocalBlobStore::Use use) {
  const fs::path node = options.data_dir / "node";
  struct stat st {};
  if (::stat((node / "store").c_str(), &st) != 0) {
    if (errno == EACCES)
      return fail(ErrorKind::permission_denied, "not_root", "the store of checkpoints belongs to the server", "run it with sudo");
    return fail(ErrorKind::not_found, "store_missing", fmt::format("{} has no store of checkpoints", options.data_dir.string()),
                "give the server's folder with --data-dir");
  }
  snapshot::LocalStoreOptions settings;
  settings.freeze = thaw;
  TRY(auto store, LocalBlobStore::open(node / "store", std::move(settings), use));
  TRY(ManifestKey key, ManifestKey::open(node / "manifest.key"));
  return Opened{std::move(store), std::move(key)};
}

Result<Opened> open_backup(const fs::path& folder, LocalBlobStore::Use use) {
  if (use == LocalBlobStore::Use::reader && ::access((folder / "manifest.key").c_str(), R_OK) != 0)
    return fail(ErrorKind::not_found, "backup_missing", fmt::format("{} is not a backup", folder.string()),
                "give the folder that `space backup` wrote");
  TRY_VOID(make_directories(folder));
  TRY(auto store, LocalBlobStore::open(folder / "store", {}, use));
  TRY(ManifestKey key, ManifestKey::open(folder / "manifest.key"));
  return Opened{std::move(store), std::move(key)};
}

// A sandbox that lives on stands on layers of its disk, also when the checkpoint that named them is gone. Its record says which.
Result<std::set<std::string>> layers_of_sandboxes(const fs::path& node) {
  std::set<std::string> layers;
  const auto ids = list_directory(node / "sandboxes");
  if (!ids && ids.error().kind == ErrorKind::not_found) return layers;
  if (!ids) return fail(ids.error());
  for (const std::string& id : *ids) {
    const auto record = read_file(node / "sandboxes" / id / "record.json", 4 << 20);
    if (!record && record.error().kind == ErrorKind::not_found) continue;
    if (!record) return fail(record.error());
    layers.merge(snapshot::digests_in(*record));
  }
  return layers;
}

// What root has put into node's store is node's.
Result<> give_to_owner(const fs::path& node) {
  struct stat owner {};
  if (::stat(node.c_str(), &owner) != 0) return fail_errno(errno, "look at node's folder");
  std::error_code error;
  for (fs::recursive_directory_iterator it(node / "store", error), end; !error && it != end; it.increment(error)) {
    struct stat st {};
    if (::lstat(it->path().c_str(), &st) != 0 || (st.st_uid == owner.st_uid && st.st_gid == owner.st_gid)) continue;
    if (::lchown(it->path().c_str(), owner.st_uid, owner.st_gid) != 0) return fail_errno(errno, "give a file to node");
  }
  if (error) return fail_errno(error.value(), "list the store");
  return {};
}

// Below the server's own folder alone: one that was named may be other servers' too.
Result<std::vector<tmpl::StoredBase>> unneeded_bases(const StoreOptions& options, const Opened& server) {
  const fs::path root = options.data_dir / "bases";
  const auto current = tmpl::read_current(root);
  if (!current && current.error().kind == ErrorKind::not_found) return std::vector<tmpl::StoredBase>{};  // node has not looked yet
  if (!current) return fail(current.error());
  TRY(const auto needs, local_needs(options.data_dir / "node", *server.store, server.key));
  TRY(auto bases, tmpl::stored_bases(root));
  const auto keys = tmpl::base_keys(needs);
  std::erase_if(bases, [&](const tmpl::StoredBase& base) { return !tmpl::is_unneeded(base, *current, keys); });
  return bases;
}

int refuse(Console& console, const Error& error) {
  console.error(error);
  return exit_status_of(error);
}

Result<int> collect(Console& console, const StoreOptions& options) {
  TRY(const Opened server, open_server_store(options, options.dry_run ? LocalBlobStore::Use::reader : LocalBlobStore::Use::owner));
  TRY(const auto layers, layers_of_sandboxes(options.data_dir / "node"));
  TRY(const auto tenants, server.store->tenants());
  std::uint64_t blobs = 0, bytes = 0, removed = 0;
  for (const std::string& tenant : tenants) {
    TRY(const auto garbage, options.dry_run ? snapshot::find_garbage(*server.store, server.key, tenant, layers)
                                            : snapshot::collect_garbage(*server.store, server.key, tenant, layers));
    blobs += garbage.blobs.size();
    bytes += garbage.bytes;
    removed += garbage.removed_bytes;
    if (!options.dry_run || console.as_json()) continue;
    for (const auto& blob : garbage.blobs) console.line(fmt::format("{}  {}  {}", tenant, blob.digest, format_bytes(blob.bytes)));
  }
  TRY(const auto bases, unneeded_bases(options, server));
  std::uint64_t base_bytes = 0;
  json::array keys;
  for (const tmpl::StoredBase& base : bases) {
    base_bytes += base.bytes;
    keys.emplace_back(base.key);
    if (options.dry_run && !console.as_json())
      console.line(fmt::format("base {}  {}, {} MiB  {}", base.key, base.release_name, base.size.memory_mib, format_bytes(base.bytes)));
    if (!options.dry_run) TRY_VOID(tmpl::remove_base(options.data_dir / "bases", base.key));
  }
  if (!options.dry_run) removed += base_bytes;
  if (console.as_json()) {
    console.value(json::object{{"blobs", blobs},
                               {"bytes", bytes},
                               {"bases", std::move(keys)},
                               {"base_bytes", base_bytes},
                               {"removed_bytes", removed},
                               {"dry_run", options.dry_run}});
  } else if (options.dry_run) {
    console.line(fmt::format("{} blobs ({}) belong to no checkpoint", blobs, format_bytes(bytes)));
    console.line(fmt::format("{} bases ({}) are needed by nobody any more", bases.size(), format_bytes(base_bytes)));
  } else {
    console.line(fmt::format("{} freed", format_bytes(removed)));
  }
  return 0;
}

Result<int> verify(Console& console, const StoreOptions& options) {
  TRY(const Opened server, open_server_store(options, LocalBlobStore::Use::reader));
  TRY(const auto found, snapshot::verify_store(*server.store, server.key));
  json::array faults;
  for (const auto& fault : found.faults) {
    if (!console.as_json()) console.note(fmt::format("{}  {}  {}", fault.tenant, fault.checkpoint, describe(fault.error)));
    faults.push_back(json::object{
        {"tenant", fault.tenant}, {"checkpoint", fault.checkpoint}, {"code", fault.error.code}, {"message", fault.error.message}});
  }
  const bool whole = found.faults.empty();
  if (console.as_json()) {
    console.value(json::object{{"checkpoints", found.checkpoints},
                               {"blobs", found.blobs},
                               {"bytes", found.bytes},
                               {"unnamed_blobs", found.unnamed_blobs},
                               {"faults", std::move(faults)}});
  } else {
    console.line(fmt::format("{} checkpoints, {} blobs, {}: {}", found.checkpoints, found.blobs, format_bytes(found.bytes),
                             whole ? "all whole" : fmt::format("{} faults", found.faults.size())));
  }
  return whole ? 0 : exit_status_of(found.faults.front().error);
}

void tell_copied(Console& console, const snapshot::Copied& copied) {
  console.result(
      json::object{{"checkpoints", copied.checkpoints}, {"present", copied.present}, {"blobs", copied.blobs}, {"bytes", copied.bytes}},
      fmt::format("{} checkpoints copied ({}), {} were there", copied.checkpoints, format_bytes(copied.bytes), copied.present));
}

Result<int> backup(Console& console, const StoreOptions& options) {
  TRY(const Opened server, open_server_store(options, LocalBlobStore::Use::reader));
  TRY(const Opened away, open_backup(options.folder, LocalBlobStore::Use::owner));
  TRY(const auto copied, snapshot::copy_store(*server.store, server.key, *away.store, away.key));
  tell_copied(console, copied);
  return 0;
}

Result<int> restore(Console& console, const StoreOptions& options) {
  TRY(const Opened away, open_backup(options.folder, LocalBlobStore::Use::reader));
  TRY(const Opened server, open_server_store(options, LocalBlobStore::Use::owner));
  const auto copied = snapshot::copy_store(*away.store, away.key, *server.store, server.key);
  TRY_VOID(give_to_owner(options.data_dir / "node"));  // also of what was copied before a fault
  if (!copied) return fail(copied.error());
  tell_copied(console, *copied);
  return 0;
}

int finish(Console& console, const Result<int>& result) { return result ? *result : refuse(console, result.error()); }

}  // namespace

int collect_store(Console& console, const StoreOptions& options) { return finish(console, collect(console, options)); }
int verify_local_store(Console& console, const StoreOptions& options) { return finish(console, verify(console, options)); }
int backup_store(Console& console, const StoreOptions& options) { return finish(console, backup(console, options)); }
int restore_store(Console& console, const StoreOptions& options) { return finish(console, restore(console, options)); }

}  // namespace space::cli
