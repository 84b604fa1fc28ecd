#include "build/uploads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"
#include "build/spec.h"

namespace space::build {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIncoming = "incoming-";
constexpr std::uint64_t kLowWater = 1ULL << 30;  // bytes of the disk that uploads leave to what runs

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const auto size = it->is_regular_file(gone) ? it->file_size(gone) : 0;
    if (!gone) sum += size;
  }
  return sum;
}

// Whether a file was not used for `most_ms`.
bool is_old(const fs::path& path, std::int64_t now_ms, std::int64_t most_ms) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && now_ms - static_cast<std::int64_t>(st.st_mtim.tv_sec) * 1000 > most_ms;
}

}  // namespace

Uploads::Incoming::~Incoming() {
  if (!done_ && !path_.empty()) ::unlink(path_.c_str());
}

Result<Uploads::Incoming> Uploads::begin(const std::string& tenant) const {
  Incoming out;
  out.folder_ = root_ / tenant;
  for (const char* name : {"content", "names"}) TRY_VOID(make_directories(out.folder_ / name));
  out.path_ = out.folder_ / (std::string(kIncoming) + new_id());
  TRY(out.file_, open_file(out.path_, O_WRONLY | O_CREAT | O_EXCL));
  const std::uint64_t used = bytes_below(out.folder_);
  out.room_ = used < limits_.tenant ? limits_.tenant - used : 0;
  out.most_ = limits_.one;
  return out;
}

Result<> Uploads::Incoming::write(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (bytes_ > most_)
    return fail(ErrorKind::too_large, "upload_too_large", fmt::format("one upload has at most {} MiB", most_ >> 20),
                "leave out what the build does not need");
  if (bytes_ > room_)
    return fail(ErrorKind::resource_exhausted, "uploads_full",
                "the files that this tenant sent for builds take all the room there is for them", "wait a day: what is not used goes");
  struct statvfs disk {};
  if (::fstatvfs(file_.get(), &disk) == 0 && static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize < kLowWater)
    return fail(ErrorKind::insufficient_storage, "store_low_water", "the server's disk is nearly full", "free some space there");
  digest_.add(bytes);
  return write_all(file_, as_text(bytes));
}

Result<> Uploads::Incoming::commit(const std::string& name, bool is_digest) {
  const std::string digest = hex_encode(digest_.finish());
  if (is_digest && digest != name)
    return fail(ErrorKind::invalid_argument, "upload_digest", fmt::format("the bytes that came have the SHA-256 {}", digest),
                "send them to that name");
  if (::fsync(file_.get()) != 0) return fail_errno(errno, "sync an upload");
  const fs::path content = folder_ / "content" / digest;
  if (::rename(path_.c_str(), content.c_str()) != 0) return fail_errno(errno, "keep an upload");
  done_ = true;
  TRY_VOID(sync_directory(folder_ / "content"));
  return write_file_durable(folder_ / "names" / name, digest);
}

Result<std::optional<std::string>> Uploads::find(const std::string& tenant, const std::string& name) const {
  if (!is_upload(name)) return std::nullopt;
  const fs::path folder = root_ / tenant;
  auto digest = read_file(folder / "names" / name, 64);
  if (!digest) {
    if (digest.error().kind == ErrorKind::not_found) return std::nullopt;
    return fail(std::move(digest).error());
  }
  if (!is_upload(*digest)) return std::nullopt;
  // The time of the last use, for the sweep.
  const bool there = ::utimensat(AT_FDCWD, (folder / "content" / *digest).c_str(), nullptr, 0) == 0;
  if (there) (void)::utimensat(AT_FDCWD, (folder / "names" / name).c_str(), nullptr, 0);
  return there ? std::optional(*digest) : std::nullopt;
}

Result<Uploads::File> Uploads::open(const std::string& tenant, const std::string& digest) const {
  auto file = open_file(root_ / tenant / "content" / digest, O_RDONLY);
  if (!file)
    return fail(ErrorKind::not_found, "upload_missing", "the files of this build are not here any more",
                "send them again: start the build anew");
  struct stat st {};
  if (::fstat(file->get(), &st) != 0) return fail_errno(errno, "look at an upload");
  return File{std::move(*file), static_cast<std::uint64_t>(st.st_size)};
}

Result<> Uploads::sweep(std::int64_t now_ms) const {
  auto tenants = list_directory(root_);
  if (!tenants) return {};
  for (const std::string& tenant : *tenants) {
    TRY(const auto entries, list_directory(root_ / tenant));
    for (const std::string& entry : entries) {
      const fs::path path = root_ / tenant / entry;
      if (entry.starts_with(kIncoming) && is_old(path, now_ms, 3'600'000)) TRY_VOID(remove_tree(path));
      if (entry != "content" && entry != "names") continue;
      TRY(const auto files, list_directory(path));
      for (const std::string& file : files)
        if (is_old(path / file, now_ms, limits_.unused_ms)) TRY_VOID(remove_tree(path / file));
    }
  }
  return {};
}

}  // namespace space::build
