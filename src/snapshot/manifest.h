// A checkpoint's manifest: everything that is needed to make a sandbox of it again, under a key that only the node has. Written
// last, so what has no manifest does not exist.
//
// The text is one line, "space-manifest <format> <key id> <length> <hmac>", and `length` bytes of JSON. The HMAC-SHA256 covers
// format and body, the tenant's name in it; it is checked before a byte of the body is parsed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "snapshot/blob_store.h"
#include "snapshot/memory_state.h"

namespace space::snapshot {

// The key that signs manifests: 32 random bytes in a file of mode 0600, made at the first start. Thread-safe.
class ManifestKey {
 public:
  static Result<ManifestKey> open(const std::filesystem::path& file);
  static ManifestKey of(const Sha256& key);
  ManifestKey(const ManifestKey&) = default;
  ManifestKey& operator=(const ManifestKey&) = default;
  ~ManifestKey() { wipe(key_); }
  const std::string& id() const { return id_; }   // 16 hex digits, not secret
  std::string sign(std::string_view body) const;  // hex HMAC

 private:
  ManifestKey() = default;
  std::string id_;
  Sha256 key_{};
};

enum class CheckpointKind { checkpoint, suspend, file_snapshot };  // a file snapshot has a disk alone

struct DiskGeneration {
  BlobRef blob;  // a qcow2 overlay
  bool operator==(const DiskGeneration&) const = default;
};

struct Manifest {
  std::string id;  // of the checkpoint; a base id
  std::string tenant;
  CheckpointKind kind = CheckpointKind::checkpoint;
  std::string sandbox;     // that it was taken of
  std::string lineage;     // shared by everything that descends from one create
  std::string parent;      // checkpoint id, or empty
  std::string name;        // given by the user, may be empty
  bool automatic = false;  // nobody asked for it: it goes by itself, and with its sandbox
  std::string template_digest;
  std::string base_key;   // 64 hex
  std::string vmm_build;  // that wrote the device state
  std::uint32_t cpus = 1, memory_mib = 512, disk_mib = 4096;
  std::int64_t created_ms = 0;           // UTC
  std::uint64_t own_bytes = 0;           // what this checkpoint added to the store
  std::optional<MemoryState> memory;     // none for a file snapshot
  std::optional<BlobRef> device_state;   // with memory, always
  std::optional<BlobRef> gateway_state;  // opaque here
  std::vector<DiskGeneration> disk;      // above the base's own disks, bottom to top; at most 64
  std::string settings;                  // opaque here, at most 256 KiB: node's own record of the sandbox
  std::optional<BlobRef> map_blob;       // where the page map lies when it is not in the manifest itself; set by publish and read
};

// Every blob that the checkpoint needs, its page map's included; each once.
std::vector<BlobRef> blobs_of(const Manifest& manifest);

// Signs and publishes. A page map beyond 32 KiB goes into a blob of its own. Every blob that `manifest` names is under `lease`, which
// may go afterwards. invalid_argument/manifest_invalid for one that read_manifest would refuse; conflict/manifest_exists.
Result<> publish_manifest(BlobStore& store, Lease& lease, const ManifestKey& key, Manifest& manifest);

// Refused by name (corrupt): manifest_truncated, manifest_unknown_version, manifest_other_key, manifest_wrong_hmac,
// manifest_other_tenant, manifest_damaged; blob_… for its page map. not_found/checkpoint_unknown.
Result<Manifest> read_manifest(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::string& id);

// The same without reading a page map that lies in a blob of its own: enough to list checkpoints and to know their blobs.
Result<Manifest> read_manifest_outline(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::string& id);

// Parts of the above, for tests and the fuzz target. open_manifest gives the body of an authentic text.
std::string seal_manifest(const ManifestKey& key, std::string_view body);
Result<std::string_view> open_manifest(const ManifestKey& key, std::string_view text);
std::string write_manifest_body(const Manifest& manifest);
Result<Manifest> parse_manifest_body(std::string_view body);  // with an empty page map when map_blob is set

}  // namespace space::snapshot
