// What the sandboxes and checkpoints of a server stand on, read from its disk by root; the server may run.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "snapshot/blob_store.h"
#include "snapshot/manifest.h"
#include "template/needs.h"

namespace space::cli {

// `node`: the folder <data>/node; where there is none, nobody needs anything. Fails when a record or a manifest cannot be read: what it
// needs is not known then.
Result<std::vector<tmpl::Need>> local_needs(const std::filesystem::path& node);
Result<std::vector<tmpl::Need>> local_needs(const std::filesystem::path& node, snapshot::BlobStore& store,
                                            const snapshot::ManifestKey& key);

}  // namespace space::cli
