#include "snapshot/upkeep.h"

#include <algorithm>
#include <map>

#include "snapshot/page_layer.h"

namespace space::snapshot {
namespace {

// The blobs that this tenant's manifests name. One that is withdrawn meanwhile is no fault.
Result<std::set<std::string>> named_blobs(BlobStore& store, const ManifestKey& key, const std::string& tenant) {
  std::set<std::string> named;
  TRY(const auto ids, store.manifests(tenant));
  for (const std::string& id : ids) {
    const auto manifest = read_manifest_outline(store, key, tenant, id);
    if (!manifest && manifest.error().code == "checkpoint_unknown") continue;
    if (!manifest) {
      Error error = manifest.error();
      error.message = "the checkpoint " + id + ": " + error.message;
      error.next = "restore it from a backup, or delete it";
      return fail(std::move(error));
    }
    for (BlobRef& blob : blobs_of(*manifest)) named.insert(std::move(blob.digest));
  }
  return named;
}

// The map and the layers say the same about every page.
Result<> check_memory(BlobStore& store, const std::string& tenant, const MemoryState& state) {
  std::vector<std::unique_ptr<LayerReader>> readers;
  for (const LayerRef& layer : state.layers) {
    TRY(auto reader, LayerReader::open(store, tenant, layer));
    readers.push_back(std::move(reader));
  }
  for (const PageExtent& extent : state.map.extents()) {
    if (extent.place.kind != PagePlace::Kind::layer) continue;
    const auto& pages = readers.at(extent.place.layer)->index().pages;
    for (std::uint32_t i = 0; i < extent.count; ++i) {
      const std::size_t position = std::size_t{extent.place.position} + i;
      if (position >= pages.size() || pages[position] != extent.first + i)
        return fail(ErrorKind::corrupt, "layer_damaged", "a page is not where the map says", "restore the checkpoint from a backup");
    }
  }
  return {};
}

Result<BlobRef> copy_blob(BlobStore& from, const BlobRef& blob, BlobStore& into, Lease& lease) {
  // By descriptor where there is one: holes of a disk stay holes.
  if (const auto file = from.descriptor(lease.tenant(), blob)) return into.put_file(lease, *file, {});
  TRY(auto writer, into.create(lease));
  std::vector<std::byte> buffer(std::min<std::uint64_t>(1 << 20, blob.bytes));
  for (std::uint64_t at = 0; at < blob.bytes;) {
    const std::span part(buffer.data(), std::min<std::uint64_t>(buffer.size(), blob.bytes - at));
    TRY_VOID(from.get(lease.tenant(), blob, at, part));
    TRY_VOID(writer->write(part));
    at += part.size();
  }
  return writer->commit();
}

}  // namespace

Result<Garbage> find_garbage(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::set<std::string>& spared) {
  // Listed first: a blob that comes after it is not garbage, whatever the manifests say.
  TRY(const auto blobs, store.list(tenant));
  TRY(const auto named, named_blobs(store, key, tenant));
  Garbage garbage;
  for (const BlobRef& blob : blobs) {
    if (named.contains(blob.digest) || spared.contains(blob.digest)) continue;
    garbage.blobs.push_back(blob);
    garbage.bytes += blob.bytes;
  }
  return garbage;
}

Result<Garbage> collect_garbage(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::set<std::string>& spared) {
  TRY(const auto sweep, store.sweep(tenant));  // before anything is read
  TRY(Garbage garbage, find_garbage(store, key, tenant, spared));
  for (const BlobRef& blob : garbage.blobs) {
    TRY(const bool removed, sweep->remove(blob));
    if (removed) garbage.removed_bytes += blob.bytes;
  }
  return garbage;
}

std::set<std::string> digests_in(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  std::set<std::string> out;
  for (std::size_t at = text.find(kPrefix); at != std::string_view::npos; at = text.find(kPrefix, at + 1))
    if (const std::string_view digest = text.substr(at, kPrefix.size() + 64); is_digest(digest)) out.emplace(digest);
  return out;
}

Result<Verification> verify_store(BlobStore& store, const ManifestKey& key, const std::function<void(const std::string&)>& progress) {
  Verification out;
  TRY(const auto tenants, store.tenants());
  for (const std::string& tenant : tenants) {
    std::map<std::string, Result<>> seen;  // by digest
    TRY(const auto ids, store.manifests(tenant));
    for (const std::string& id : ids) {
      auto check = [&]() -> Result<> {
        TRY(const Manifest manifest, read_manifest(store, key, tenant, id));
        for (const BlobRef& blob : blobs_of(manifest)) {
          auto known = seen.find(blob.digest);
          if (known == seen.end()) {
            known = seen.emplace(blob.digest, verify_blob(store, tenant, blob)).first;
            ++out.blobs;
            out.bytes += blob.bytes;
          }
          TRY_VOID(known->second);
        }
        if (manifest.memory) return check_memory(store, tenant, *manifest.memory);
        return {};
      };
      if (progress) progress(tenant + "/" + id);
      auto result = check();
      if (!result && result.error().code == "blob_missing" && !store.manifest(tenant, id)) continue;  // deleted while we looked
      if (!result && result.error().code == "checkpoint_unknown") continue;
      ++out.checkpoints;
      if (!result) out.faults.push_back({tenant, id, result.error()});
    }
    TRY(const auto blobs, store.list(tenant));
    for (const BlobRef& blob : blobs)
      if (!seen.contains(blob.digest)) ++out.unnamed_blobs;
  }
  return out;
}

std::vector<std::string> expired(std::vector<CheckpointAge> all, const RetentionRules& rules, std::int64_t now_ms) {
  std::sort(all.begin(), all.end(),
            [](const CheckpointAge& a, const CheckpointAge& b) { return std::tie(b.created_ms, b.id) < std::tie(a.created_ms, a.id); });
  std::map<std::pair<std::string, CheckpointKind>, std::uint32_t> kept;
  std::vector<std::string> out;
  for (const CheckpointAge& one : all) {  // newest first
    if (one.kind == CheckpointKind::suspend) continue;
    const Retention& rule = one.kind == CheckpointKind::file_snapshot ? rules.file_snapshots : rules.checkpoints;
    if (rule.keep_last == 0 && rule.keep_for_ms == 0) continue;
    if (one.named && !rule.named_too) continue;
    const bool among_last = ++kept[{one.sandbox, one.kind}] <= rule.keep_last;
    const bool young = rule.keep_for_ms != 0 && now_ms - one.created_ms < rule.keep_for_ms;
    if (!among_last && !young) out.push_back(one.id);
  }
  return out;
}

Result<Copied> copy_store(BlobStore& from, const ManifestKey& from_key, BlobStore& into, const ManifestKey& into_key) {
  Copied out;
  TRY(const auto tenants, from.tenants());
  for (const std::string& tenant : tenants) {
    TRY(const auto ids, from.manifests(tenant));
    for (const std::string& id : ids) {
      auto copy = [&]() -> Result<> {
        TRY(Manifest manifest, read_manifest(from, from_key, tenant, id));
        TRY(const auto lease, into.lease(tenant));
        for (const BlobRef& blob : blobs_of(manifest)) {
          if (lease->keep(blob) && verify_blob(into, tenant, blob)) continue;
          TRY(const BlobRef copied, copy_blob(from, blob, into, *lease));
          if (copied != blob)
            return fail(ErrorKind::corrupt, "blob_corrupt", "the blob " + blob.digest + " is not what its name says",
                        "verify the store that it comes from");
          ++out.blobs;
          out.bytes += blob.bytes;
        }
        if (manifest.memory) TRY_VOID(check_memory(into, tenant, *manifest.memory));
        if (read_manifest_outline(into, into_key, tenant, id)) {
          ++out.present;
          return {};
        }
        TRY_VOID(into.withdraw(tenant, id));  // damaged there
        TRY_VOID(publish_manifest(into, *lease, into_key, manifest));
        ++out.checkpoints;
        return {};
      };
      auto done = copy();
      if (!done && !from.manifest(tenant, id)) continue;  // deleted while it was copied
      if (!done) {
        Error error = done.error();
        error.message = "the checkpoint " + id + " of " + tenant + ": " + error.message;
        return fail(std::move(error));
      }
    }
  }
  return out;
}

}  // namespace space::snapshot
