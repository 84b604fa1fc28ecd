// What keeps a store in order: collecting garbage, checking everything, letting old checkpoints go, copying the store elsewhere.
// All of it blocks, for seconds with a large store, and may run while checkpoints are taken.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "snapshot/blob_store.h"
#include "snapshot/manifest.h"

namespace space::snapshot {

struct Garbage {
  std::vector<BlobRef> blobs;       // that no manifest names
  std::uint64_t bytes = 0;          // of them
  std::uint64_t removed_bytes = 0;  // less when a lease held some, 0 for a listing
};

// Blobs of one tenant that no manifest names. A manifest that cannot be read stops it (its own error): what it names is not known.
// `spared`: digests that others than manifests stand on, and that no lease speaks for: node's, while it does not run.
Result<Garbage> find_garbage(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::set<std::string>& spared = {});
// Removes them, but for those under a lease. Killed at any instant it leaves garbage, never a checkpoint without its blobs.
Result<Garbage> collect_garbage(BlobStore& store, const ManifestKey& key, const std::string& tenant,
                                const std::set<std::string>& spared = {});

// Every digest that stands in a text, whatever the text is.
std::set<std::string> digests_in(std::string_view text);

struct StoreFault {
  std::string tenant;
  std::string checkpoint;  // or empty
  Error error;
};
struct Verification {
  std::uint64_t checkpoints = 0, blobs = 0, bytes = 0;  // looked at
  std::uint64_t unnamed_blobs = 0;                      // garbage, not a fault
  std::vector<StoreFault> faults;
};
// Every manifest (form, HMAC, tenant), every blob against its name, every layer against the maps that use it. `progress` may be empty.
Result<Verification> verify_store(BlobStore& store, const ManifestKey& key, const std::function<void(const std::string&)>& progress = {});

// Which checkpoints go by age or number. Of one sandbox and one kind the newest `keep_last` stay, and whatever is younger than
// `keep_for_ms`; 0 for either means no such bound, and with both 0 everything stays. Named ones stay unless `named_too`.
struct Retention {
  std::uint32_t keep_last = 0;
  std::int64_t keep_for_ms = 0;
  bool named_too = false;
};
struct RetentionRules {
  Retention checkpoints, file_snapshots;  // suspended sandboxes never expire
};
struct CheckpointAge {
  std::string id, sandbox;
  CheckpointKind kind = CheckpointKind::checkpoint;
  std::int64_t created_ms = 0;
  bool named = false;
};
std::vector<std::string> expired(std::vector<CheckpointAge> checkpoints, const RetentionRules& rules, std::int64_t now_ms);

struct Copied {
  std::uint64_t checkpoints = 0, blobs = 0, bytes = 0;  // that were not there yet
  std::uint64_t present = 0;                            // checkpoints that were
};
// Copies every checkpoint of `from` that `into` lacks, each verified and signed anew with `into`'s key; blobs first, manifests last.
// The first fault ends it with its own error, and what was copied until then is whole. Again goes on where it ended.
Result<Copied> copy_store(BlobStore& from, const ManifestKey& from_key, BlobStore& into, const ManifestKey& into_key);

}  // namespace space::snapshot
