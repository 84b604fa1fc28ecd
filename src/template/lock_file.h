// The lock of a build: which packages a root filesystem consists of. Written by templates/rootfs, kept with the release.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::tmpl {

struct LockedPackage {
  std::string name, version, architecture, sha256;
  bool operator==(const LockedPackage&) const = default;
};

struct LockFile {
  std::vector<std::string> sources;     // "URI SUITE COMPONENT", what the guest's apt uses
  std::vector<LockedPackage> packages;  // sorted by name
  bool operator==(const LockFile&) const = default;
};

// Strict; names the line. template_lock.
Result<LockFile> parse_lock_file(std::string_view text);

}  // namespace space::tmpl
