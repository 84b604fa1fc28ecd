// Published templates on this machine. A release is immutable: name:tag → digest is written once. Blocks; use from a pool.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::tmpl {

inline constexpr std::size_t kLongestCommand = 16 << 10;  // of `start` and `ready`

struct Release {
  std::string name;          // "base"; [a-z0-9-_]{1,64}
  std::string tag;           // "latest", "default", "2026.11"; [a-z0-9-_.]{1,64}
  std::string digest;        // "sha256:…" of the files and the runtime configuration
  std::string image_digest;  // "sha256:…" of the image's blocks: the same files may lie elsewhere in another machine's image
  std::int64_t created_ms = 0;
  std::uint32_t cpus = 1, memory_mib = 512, disk_mib = 4096;  // the default size
  std::map<std::string, std::string> env;
  std::string user = "user";
  std::string workdir;              // "": the user's home
  std::string start, ready;         // commands: the agent runs `start` at a boot; a base is saved once `ready` succeeds; "": none
  std::filesystem::path rootfs;     // raw ext4, sparse, read-only
  std::filesystem::path kernel;     // uncompressed ELF
  std::filesystem::path initramfs;  // holds the agent and the modules; belongs to this installation, not to the digest
  std::uint64_t rootfs_bytes = 0;   // allocated
  // Of a release that was published out of a sandbox (published.h); "" otherwise.
  std::string stands_on;       // digest of the release whose rootfs lies below
  std::filesystem::path disk;  // qcow2 over the rootfs, read-only
  std::string disk_digest;
  std::uint64_t disk_bytes = 0;
};

inline std::string label_of(const Release& release) { return release.name + ":" + release.tag; }  // what people call it

// "base", "base:latest" or "sha256:…" taken apart. Without a tag, "latest". Either `digest` or `name` and `tag` are set.
struct Reference {
  std::string name, tag, digest;
};
Result<Reference> parse_reference(std::string_view text);  // invalid_argument/template_reference

// The releases below one folder (architecture.md, "Templates", has its layout). Every process may read it; writing needs its owner
// and takes a lock, so that several programs may build and remove at once. Nothing is cached: each call reads the disk.
class TemplateStore {
 public:
  // `published`: the folder of what a server published out of sandboxes (published.h); "": none. A name:tag of the system's goes first.
  explicit TemplateStore(std::filesystem::path root, std::filesystem::path published = {})
      : root_(std::move(root)), published_(std::move(published)) {}
  const std::filesystem::path& root() const { return root_; }

  // Unknown: not_found/template_not_found. A release whose parts are missing or damaged: corrupt/template_corrupt, by name.
  Result<Release> resolve(std::string_view reference) const;
  Result<std::vector<Release>> list() const;    // by name and tag; damaged ones are left out and logged
  Result<> remove(std::string_view reference);  // the tag, or every tag of a digest; the content goes when no tag names it

 private:
  std::filesystem::path root_, published_;
};

}  // namespace space::tmpl
