// bases/<key>/ on disk: memory, state, overlay.qcow2, empty.qcow2, and manifest.json, which is written last. A folder is made under
// another name and renamed when it is whole; what has no valid manifest does not exist. Private to this folder; blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "snapshot/memory_image.h"
#include "template/base_images.h"

namespace space::tmpl {

struct BaseFile {
  std::uint64_t bytes = 0;
  std::string digest;
};

struct BaseManifest {
  std::string key, release_digest, release_name, state_key;
  vmm::Size size;
  std::int64_t created_ms = 0;
  snapshot::MemoryImage memory;
  BaseFile state, overlay, empty_overlay;
};
std::string write_manifest(const BaseManifest& manifest);
Result<BaseManifest> read_manifest(std::string_view text);

inline constexpr const char* kMemoryFile = "memory";
inline constexpr const char* kStateFile = "state";
inline constexpr const char* kOverlayFile = "overlay.qcow2";
inline constexpr const char* kEmptyFile = "empty.qcow2";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr std::string_view kGone = ".gone-";  // before the name of a folder that is being removed

// 64 hex digits over everything that a base depends on. Reads kernel and initramfs.
Result<std::string> base_key(const Release& release, const vmm::Size& size, const std::string& state_key);

// The disk of a published release, every byte verified: template_corrupt when it is not what it was.
Result<Fd> open_release_disk(const Release& release);

// Length and digest of a file that is complete; makes it durable.
Result<BaseFile> seal_file(const std::filesystem::path& path);

// Opens bases/<key>, every byte verified. not_found/base_not_found when it is not there; corrupt/… when it is not what it was.
// Without `size`: whichever it has.
Result<std::shared_ptr<const Base>> open_base(const std::filesystem::path& root, const std::string& key, const Release& release,
                                              const std::optional<vmm::Size>& size);

// The right to make one base, among all processes that share the folder: a lock on the folder in which it is made, which is empty
// then. Nothing of it counts before publish().
class BaseClaim {
 public:
  // nullopt when somebody else makes it now. Leftovers of an interrupted making are removed.
  static Result<std::optional<BaseClaim>> take(const std::filesystem::path& root, const std::string& key);
  const std::filesystem::path& folder() const { return folder_; }
  Result<> publish();  // after the manifest was written
  void abandon();      // removes the folder

 private:
  std::filesystem::path root_, folder_, final_;
  Fd lock_;
};

// Removes what interrupted makings and removals left and nobody claims.
Result<> sweep_interrupted(const std::filesystem::path& root);

}  // namespace space::tmpl
