// Descriptors of blobs: a VMM needs its disks as files of this machine. Where the store has them here they are opened there;
// otherwise they are fetched into a folder once, checked against their names, and the ones used longest ago make room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>

#include "snapshot/blob_store.h"

namespace space::snapshot {

class BlobFiles {
 public:
  // `folder` is this object's alone; made when it is first needed. `limit_bytes` of fetched blobs are kept; the newest always is.
  BlobFiles(BlobStore& store, std::filesystem::path folder, std::uint64_t limit_bytes)
      : store_(store), folder_(std::move(folder)), limit_(limit_bytes) {}
  // Read-only. Blocks, for as long as fetching takes; any thread. blob_missing, blob_truncated, blob_corrupt.
  Result<Fd> open(const std::string& tenant, const BlobRef& blob);

 private:
  Result<Fd> fetch(const std::string& tenant, const BlobRef& blob, const std::filesystem::path& path);
  void make_room(const std::filesystem::path& keep);

  BlobStore& store_;
  const std::filesystem::path folder_;
  const std::uint64_t limit_;
  std::mutex mutex_;                // one fetch at a time
  std::set<std::string> verified_;  // names of files that this process has checked
};

}  // namespace space::snapshot
