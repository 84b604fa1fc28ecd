#include "template/base_files.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMaking = ".making-";
constexpr std::uint64_t kMostBytes = 1ull << 50;

json::object file_to_json(const BaseFile& file) { return {{"bytes", file.bytes}, {"digest", file.digest}}; }

BaseFile file_from_json(JsonReader& outer, std::string_view name) {
  const json::object* object = outer.object(name);
  if (!object) {
    outer.reject(name, "is missing");
    return {};
  }
  JsonReader reader(*object, std::string(name));
  BaseFile file;
  file.bytes = static_cast<std::uint64_t>(reader.number("bytes", 0, kMostBytes));
  file.digest = reader.text("digest", 71, 71);
  if (auto done = reader.done(); !done) outer.reject(name, done.error().message);
  return file;
}

tl::unexpected<Error> corrupt(const fs::path& folder, std::string_view what) {
  return fail(ErrorKind::corrupt, "base_corrupt", fmt::format("the base {} is damaged: {}", folder.filename().string(), what),
              "it is made again by itself");
}

Result<Fd> open_verified(const fs::path& folder, const char* name, const BaseFile& expected) {
  TRY(Fd fd, open_file(folder / name, O_RDONLY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "fstat");
  if (static_cast<std::uint64_t>(st.st_size) != expected.bytes) return corrupt(folder, fmt::format("{} has another length", name));
  TRY(const Sha256 digest, sha256_of_file(fd));
  if (digest_name(digest) != expected.digest) return corrupt(folder, fmt::format("{} has another digest", name));
  return fd;
}

}  // namespace

std::string write_manifest(const BaseManifest& m) {
  const json::object memory{{"bytes", m.memory.bytes}, {"pages", m.memory.pages}, {"digest", m.memory.digest}};
  const json::object object{{"version", 1},
                            {"key", m.key},
                            {"release_digest", m.release_digest},
                            {"release", m.release_name},
                            {"state_key", m.state_key},
                            {"cpus", m.size.cpus},
                            {"memory_mib", m.size.memory_mib},
                            {"disk_mib", m.size.disk_mib},
                            {"created_ms", m.created_ms},
                            {"memory", memory},
                            {"state", file_to_json(m.state)},
                            {"overlay", file_to_json(m.overlay)},
                            {"empty_overlay", file_to_json(m.empty_overlay)}};
  return json::serialize(object) + "\n";
}

Result<BaseManifest> read_manifest(std::string_view text) {
  TRY(const json::object object, parse_json_object(text, 64 << 10));
  JsonReader reader(object);
  BaseManifest m;
  reader.number("version", 1, 1);
  m.key = reader.text("key", 64, 64);
  m.release_digest = reader.text("release_digest", 1, 128);
  m.release_name = reader.text("release", 0, 256);
  m.state_key = reader.text("state_key", 1, 128);
  m.size.cpus = static_cast<std::uint32_t>(reader.number("cpus", 1, 1024));
  m.size.memory_mib = static_cast<std::uint32_t>(reader.number("memory_mib", 1, 1 << 24));
  m.size.disk_mib = static_cast<std::uint32_t>(reader.number("disk_mib", 1, 1 << 30));
  m.created_ms = reader.number("created_ms", 0, std::int64_t{1} << 60);
  if (const json::object* memory = reader.object("memory")) {
    JsonReader inner(*memory, "memory");
    m.memory.bytes = static_cast<std::uint64_t>(inner.number("bytes", 0, kMostBytes));
    m.memory.pages = static_cast<std::uint64_t>(inner.number("pages", 0, kMostBytes));
    m.memory.digest = inner.text("digest", 71, 71);
    TRY_VOID(inner.done());
  }
  m.state = file_from_json(reader, "state");
  m.overlay = file_from_json(reader, "overlay");
  m.empty_overlay = file_from_json(reader, "empty_overlay");
  TRY_VOID(reader.done());
  return m;
}

Result<std::string> base_key(const Release& release, const vmm::Size& size, const std::string& state_key) {
  TRY(const Fd kernel, open_file(release.kernel, O_RDONLY));
  TRY(const Sha256 kernel_digest, sha256_of_file(kernel));
  TRY(const Fd initramfs, open_file(release.initramfs, O_RDONLY));
  TRY(const Sha256 initramfs_digest, sha256_of_file(initramfs));
  const std::string all = fmt::format("space base 1\nrelease {}\nimage {}\nkernel {}\ninitramfs {}\nmachine {}\nsize {} {} {}\n",
                                      release.digest, release.image_digest, digest_name(kernel_digest), digest_name(initramfs_digest),
                                      state_key, size.cpus, size.memory_mib, size.disk_mib);
  return hex_encode(sha256(std::string_view(all)));
}

Result<Fd> open_release_disk(const Release& release) {
  TRY(Fd fd, open_file(release.disk, O_RDONLY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "fstat");
  const bool same_length = static_cast<std::uint64_t>(st.st_size) == release.disk_bytes;
  Sha256 digest{};
  if (same_length) {
    TRY(digest, sha256_of_file(fd));
  }
  if (!same_length || digest_name(digest) != release.disk_digest)
    return fail(ErrorKind::unsupported, "template_corrupt",
                fmt::format("the disk of template {}:{} is not what was published", release.name, release.tag),
                fmt::format("remove it with 'space template rm {}:{}' and publish it again", release.name, release.tag));
  return fd;
}

Result<BaseFile> seal_file(const fs::path& path) {
  TRY(const Fd fd, open_file(path, O_RDWR));
  if (::fchmod(fd.get(), 0400) != 0) return fail_errno(errno, "fchmod");
  TRY(const Sha256 digest, sha256_of_file(fd));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "fstat");
  if (::fdatasync(fd.get()) != 0) return fail_errno(errno, fmt::format("sync {}", path.string()));
  return BaseFile{static_cast<std::uint64_t>(st.st_size), digest_name(digest)};
}

Result<std::shared_ptr<const Base>> open_base(const fs::path& root, const std::string& key, const Release& release,
                                              const std::optional<vmm::Size>& size) {
  const fs::path folder = root / key;
  auto text = read_file(folder / kManifestFile, 64 << 10);
  if (!text && text.error().kind == ErrorKind::not_found) return fail(ErrorKind::not_found, "base_not_found", "there is no such base yet");
  if (!text) return fail(std::move(text).error());
  auto manifest = read_manifest(*text);
  if (!manifest) return corrupt(folder, manifest.error().message);
  if (manifest->key != key || (size && manifest->size != *size) || manifest->release_digest != release.digest)
    return corrupt(folder, "its manifest belongs to another base");

  auto base = std::make_shared<Base>();
  base->key = key;
  base->release = release;
  base->size = manifest->size;
  base->state_key = manifest->state_key;
  base->content =
      hex_encode(sha256(fmt::format("{}\n{}\n{}\n", manifest->memory.digest, manifest->state.digest, manifest->overlay.digest)));
  TRY(base->images.kernel, open_file(release.kernel, O_RDONLY));
  TRY(base->images.initramfs, open_file(release.initramfs, O_RDONLY));
  TRY(const Fd memory, open_file(folder / kMemoryFile, O_RDONLY));
  TRY(base->memory, snapshot::load_memory_image(memory, manifest->memory));
  TRY(base->state.file, open_verified(folder, kStateFile, manifest->state));
  TRY(Fd rootfs, open_file(release.rootfs, O_RDONLY));
  TRY(Fd overlay, open_verified(folder, kOverlayFile, manifest->overlay));
  base->disk.push_back({std::move(rootfs), vmm::DiskLayer::Format::raw, true});
  if (!release.disk.empty()) {
    TRY(Fd disk, open_release_disk(release));
    base->disk.push_back({std::move(disk), vmm::DiskLayer::Format::qcow2, true});
  }
  base->disk.push_back({std::move(overlay), vmm::DiskLayer::Format::qcow2, true});
  TRY(base->empty_overlay, open_verified(folder, kEmptyFile, manifest->empty_overlay));
  return std::shared_ptr<const Base>(std::move(base));
}

Result<std::optional<BaseClaim>> BaseClaim::take(const fs::path& root, const std::string& key) {
  BaseClaim claim;
  claim.root_ = root;
  claim.folder_ = root / (std::string(kMaking) + key);
  claim.final_ = root / key;
  TRY_VOID(make_directories(claim.folder_, 0700));
  TRY(claim.lock_, open_file(claim.folder_, O_RDONLY | O_DIRECTORY));
  if (::flock(claim.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    return fail_errno(errno, "lock a base");
  }
  // Whoever had the lock before may have published the folder: then this is a lock on something that has another name now.
  struct stat locked = {}, named = {};
  if (::fstat(claim.lock_.get(), &locked) != 0) return fail_errno(errno, "fstat");
  if (::stat(claim.folder_.c_str(), &named) != 0 || locked.st_ino != named.st_ino) return std::nullopt;
  TRY(const auto leftovers, list_directory(claim.folder_));
  for (const std::string& name : leftovers) TRY_VOID(remove_tree(claim.folder_ / name));
  return std::optional<BaseClaim>(std::move(claim));
}

Result<> BaseClaim::publish() {
  TRY_VOID(sync_directory(folder_));
  // A damaged base of the same name may lie there; a whole one would have been used.
  TRY_VOID(remove_tree(final_));
  if (::rename(folder_.c_str(), final_.c_str()) != 0) return fail_errno(errno, fmt::format("publish {}", final_.string()));
  return sync_directory(root_);
}

void BaseClaim::abandon() {
  if (auto removed = remove_tree(folder_); !removed) log::warn("base.leftover", {{"folder", folder_.string()}, {"error", removed.error()}});
}

Result<> sweep_interrupted(const fs::path& root) {
  TRY_VOID(make_directories(root, 0700));
  TRY(const auto names, list_directory(root));
  for (const std::string& name : names) {
    if (name.starts_with(kGone)) TRY_VOID(remove_tree(root / name));
    if (!name.starts_with(kMaking)) continue;
    TRY(auto claim, BaseClaim::take(root, name.substr(kMaking.size())));
    if (claim) claim->abandon();
  }
  return {};
}

}  // namespace space::tmpl
