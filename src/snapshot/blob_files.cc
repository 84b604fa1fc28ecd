#include "snapshot/blob_files.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/random.h"

namespace space::snapshot {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kStepBytes = 1 << 20;

}  // namespace

Result<Fd> BlobFiles::open(const std::string& tenant, const BlobRef& blob) {
  auto here = store_.descriptor(tenant, blob);
  if (here || here.error().code != "blob_remote") return here;
  if (!is_tenant(tenant) || !is_digest(blob.digest)) return fail(ErrorKind::not_found, "blob_missing", "not the name of a blob");
  // The tenant's name is part of the file's: nobody learns from the time it takes what others have.
  const std::string name = tenant + "." + blob.digest.substr(7);
  const fs::path path = folder_ / name;
  const std::scoped_lock hold(mutex_);
  if (auto file = open_file(path, O_RDONLY | O_NOFOLLOW)) {
    struct stat st {};
    bool whole = ::fstat(file->get(), &st) == 0 && static_cast<std::uint64_t>(st.st_size) == blob.bytes;
    if (whole && !verified_.contains(name)) {  // of a process before this one: a power cut may have left anything
      const auto digest = sha256_of_file(*file);
      whole = digest && digest_name(*digest) == blob.digest;
    }
    if (whole) {
      verified_.insert(name);
      (void)::futimens(file->get(), nullptr);  // used now
      return std::move(*file);
    }
  }
  auto file = fetch(tenant, blob, path);
  if (file) {
    verified_.insert(name);
    make_room(path);
  }
  return file;
}

Result<Fd> BlobFiles::fetch(const std::string& tenant, const BlobRef& blob, const fs::path& path) {
  TRY_VOID(make_directories(folder_));
  const fs::path aside = folder_ / ("." + new_id());
  auto get = [&]() -> Result<Fd> {
    TRY(const Fd file, open_file(aside, O_RDWR | O_CREAT | O_EXCL));
    Sha256Stream hash;
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kStepBytes, blob.bytes));
    for (std::uint64_t at = 0; at < blob.bytes;) {
      const std::span part(buffer.data(), std::min<std::uint64_t>(buffer.size(), blob.bytes - at));
      TRY_VOID(store_.get(tenant, blob, at, part));
      hash.add(part);
      // What is all zero stays a hole.
      if (std::any_of(part.begin(), part.end(), [](std::byte b) { return b != std::byte{0}; })) TRY_VOID(pwrite_all(file, part, at));
      at += part.size();
    }
    if (::ftruncate(file.get(), static_cast<off_t>(blob.bytes)) != 0) return fail_errno(errno, "size a fetched blob");
    if (digest_name(hash.finish()) != blob.digest)
      return fail(ErrorKind::corrupt, "blob_corrupt", "the blob " + blob.digest + " is not what its name says", "restore it from a backup");
    if (::rename(aside.c_str(), path.c_str()) != 0) return fail_errno(errno, "name a fetched blob");
    return open_file(path, O_RDONLY | O_NOFOLLOW);
  };
  auto file = get();
  if (!file) ::unlink(aside.c_str());
  return file;
}

// Removing the name of a file that a VMM has open is harmless: it goes with its last descriptor.
void BlobFiles::make_room(const fs::path& keep) {
  struct Entry {
    fs::path path;
    timespec used;
    std::uint64_t bytes;
  };
  std::vector<Entry> all;
  std::uint64_t total = 0;
  const auto names = list_directory(folder_);
  if (!names) return;
  for (const std::string& name : *names) {
    struct stat st {};
    if (::lstat((folder_ / name).c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    total += static_cast<std::uint64_t>(st.st_blocks) * 512;
    all.push_back({folder_ / name, st.st_mtim, static_cast<std::uint64_t>(st.st_blocks) * 512});
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Entry& entry : all) {
    if (total <= limit_) return;
    if (entry.path == keep || ::unlink(entry.path.c_str()) != 0) continue;
    verified_.erase(entry.path.filename().string());
    total -= entry.bytes;
  }
}

}  // namespace space::snapshot
