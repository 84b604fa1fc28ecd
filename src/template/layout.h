// Where things lie in a template store, and its lock. Private to this folder.
//
//   lock                                  flock(2) of whoever writes
//   tags/<name>/<tag>.json                which content a tag names, since when, with which kernel; written once
//   tags/<name>/<tag>.signature           who signed it (signature.h); may be missing
//   content/<64 hex>/release.json         size, environment, digests
//                    rootfs.ext4, manifest, lock
//   kernels/<package version>/vmlinux, modules/*.ko, modules/order, kernel.json
//   initramfs/<package version>/<64 hex>.cpio, current (a link to one of them)
//   staging-*                             what a build that was interrupted left; removed by the next one
#pragma once

#include <filesystem>
#include <string>

#include "base/fd.h"
#include "base/json.h"
#include "base/result.h"

namespace space::tmpl {

struct Release;

class Layout {
 public:
  explicit Layout(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path tags() const { return root_ / "tags"; }
  std::filesystem::path tag(const std::string& name, const std::string& tag) const { return tags() / name / (tag + ".json"); }
  std::filesystem::path signature(const std::string& name, const std::string& tag) const { return tags() / name / (tag + ".signature"); }
  std::filesystem::path contents() const { return root_ / "content"; }
  std::filesystem::path content(const std::string& digest) const;  // of a digest that parse_reference accepted
  std::filesystem::path kernel(const std::string& version) const { return root_ / "kernels" / version; }
  std::filesystem::path initramfs(const std::string& version) const { return root_ / "initramfs" / version; }
  std::filesystem::path current_initramfs(const std::string& version) const { return initramfs(version) / "current"; }

  // Held while the descriptor lives. Waits for another writer.
  Result<Fd> lock() const;

 private:
  std::filesystem::path root_;
};

// The version of a Debian package as a file name: [A-Za-z0-9.+~:-]{1,100}, no leading dot (deb-version(7)).
bool is_version(std::string_view text);

// The size, the environment and the commands that a release.json holds. What is wrong is the reader's to tell.
void read_runtime(JsonReader& from, Release& into);

}  // namespace space::tmpl
