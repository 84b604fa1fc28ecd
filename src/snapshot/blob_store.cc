#include "snapshot/blob_store.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/digest.h"

namespace space::snapshot {
namespace {

constexpr std::size_t kCopyBytes = 1 << 20;

tl::unexpected<Error> damaged(const BlobRef& blob) {
  return fail(ErrorKind::corrupt, "blob_corrupt", fmt::format("the blob {} is not what its name says", blob.digest),
              "restore it from a backup");
}

}  // namespace

bool is_digest(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  if (text.size() != kPrefix.size() + 64 || !text.starts_with(kPrefix)) return false;
  return text.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

bool is_tenant(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Result<std::string> read_blob(BlobStore& store, const std::string& tenant, const BlobRef& blob, std::uint64_t limit) {
  if (blob.bytes > limit)
    return fail(ErrorKind::too_large, "blob_too_large", fmt::format("the blob {} has more than {} bytes", blob.digest, limit));
  std::string bytes(blob.bytes, '\0');
  TRY_VOID(store.get(tenant, blob, 0, std::as_writable_bytes(std::span(bytes))));
  if (digest_name(sha256(std::string_view(bytes))) != blob.digest) return damaged(blob);
  return bytes;
}

Result<BlobRef> put_bytes(BlobStore& store, Lease& lease, std::string_view bytes) {
  TRY(auto writer, store.create(lease));
  TRY_VOID(writer->write(std::as_bytes(std::span(bytes))));
  return writer->commit();
}

Result<> verify_blob(BlobStore& store, const std::string& tenant, const BlobRef& blob) {
  Sha256Stream hash;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kCopyBytes, blob.bytes));
  for (std::uint64_t at = 0; at < blob.bytes;) {
    const std::span part(buffer.data(), std::min<std::uint64_t>(buffer.size(), blob.bytes - at));
    TRY_VOID(store.get(tenant, blob, at, part));
    hash.add(part);
    at += part.size();
  }
  if (digest_name(hash.finish()) != blob.digest) return damaged(blob);
  return {};
}

}  // namespace space::snapshot
