// Files of a folder by number, for FUSE. A number is an ext4 inode's, and a keyed hash of it and its generation: it means the same after
// every restart, and a guest can name what it was shown and nothing else, since what lies outside the folder has no number that it
// could know.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

class FuseNodes {
 public:
  // `folder` lies on ext4: else unsupported/volume_unsupported. `key`: the file with the key of the hash, made when it is not there; with
  // another key the numbers that kernels hold mean nothing any more.
  static Result<FuseNodes> open(const std::string& folder, const std::string& key);

  std::optional<std::uint64_t> number_of(const Fd& thing) const;  // nothing for what lies on another filesystem
  // Empty, with errno as the kernel set it, or ESTALE: there is no such thing (any more). `flags` as for open(2); FUSE_ROOT_ID is the
  // folder.
  Fd open(std::uint64_t number, int flags) const;
  const Fd& folder() const { return folder_; }

 private:
  FuseNodes() = default;
  std::uint64_t seal(std::uint64_t handle) const;
  Fd folder_;  // for open_by_handle_at(2), which wants no O_PATH
  std::array<std::uint64_t, 2> key_{};
};

}  // namespace space::agent
