// Files that clients sent for builds: archives, kept as the bytes they are and never opened here. A name is what the client calls
// them by (E2B's SDKs: a hash of their own; natively the SHA-256 of the bytes); what counts for layers is the bytes' digest.
//
//   <root>/<tenant>/content/<64 hex>   the bytes
//   <root>/<tenant>/names/<64 hex>     the digest of the bytes that it names
//   <root>/<tenant>/incoming-*         under way, or left by a kill
//
// Blocks: use from a pool. Tenants share nothing. What was not used for a day goes (sweep).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/digest.h"
#include "base/fd.h"
#include "base/result.h"

namespace space::build {

struct UploadLimits {
  std::uint64_t one = std::uint64_t{2} << 30;      // bytes of one file
  std::uint64_t tenant = std::uint64_t{16} << 30;  // of all of a tenant
  std::int64_t unused_ms = 24LL * 3600 * 1000;
};

class Uploads {
 public:
  explicit Uploads(std::filesystem::path root, UploadLimits limits = {}) : root_(std::move(root)), limits_(limits) {}
  const UploadLimits& limits() const { return limits_; }

  // One file on its way. Without commit nothing of it stays.
  class Incoming {
   public:
    Incoming(Incoming&&) noexcept = default;
    Incoming& operator=(Incoming&&) = delete;
    ~Incoming();
    Result<> write(std::span<const std::byte> bytes);  // too_large/upload_too_large, insufficient_storage, resource_exhausted/uploads_full
    // Durable under `name` when it returns. `is_digest`: the name must be that of the bytes (invalid_argument/upload_digest).
    Result<> commit(const std::string& name, bool is_digest);

   private:
    friend class Uploads;
    Incoming() = default;
    std::filesystem::path folder_, path_;
    Fd file_;
    Sha256Stream digest_;
    std::uint64_t bytes_ = 0, room_ = 0, most_ = 0;
    bool done_ = false;
  };
  Result<Incoming> begin(const std::string& tenant) const;

  // The digest of the bytes (64 hex digits), nullopt when there are none; being asked for counts as use.
  Result<std::optional<std::string>> find(const std::string& tenant, const std::string& name) const;
  struct File {
    Fd file;
    std::uint64_t bytes = 0;
  };
  Result<File> open(const std::string& tenant, const std::string& digest) const;  // not_found/upload_missing
  Result<> sweep(std::int64_t now_ms) const;

 private:
  std::filesystem::path root_;
  UploadLimits limits_;
};

}  // namespace space::build
