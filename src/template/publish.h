// Writing releases: content first, then the tag that names it, each by one rename. A tag that exists is never written again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "template/release.h"

namespace space::tmpl {

// What a release says beside its files. Part of its digest.
struct RuntimeConfig {
  std::uint32_t cpus = 1, memory_mib = 512, disk_mib = 4096;
  std::map<std::string, std::string> env;
  std::string user = "user";
  std::string workdir;
  std::string start, ready;  // lines for the shell: started before the base is saved, and asked until it succeeds; "": none
};

struct NewRelease {
  std::string name, tag;
  RuntimeConfig config;
  std::string tree_digest;  // "sha256:…" of the manifest of the files
  std::string image_digest;
  std::string kernel_version;    // below kernels/
  std::filesystem::path staged;  // on the store's disk, with rootfs.ext4, manifest and lock; moved into the store
  std::int64_t created_ms = 0;
};

// "sha256:…" over the files' digest and the configuration in one fixed text form.
std::string release_digest(const std::string& tree_digest, const RuntimeConfig& config);

// Makes `next` visible. Published already with the same digest: success, and the staged files are dropped. With another one:
// conflict/template_tag_exists. Blocks; the caller holds the store's lock.
Result<Release> publish(const TemplateStore& store, const NewRelease& next);

}  // namespace space::tmpl
