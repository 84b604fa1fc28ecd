// An ext4 image out of an archive, written block by block by libext2fs: nothing is mounted, no kernel parses it, and the same
// archive gives the same bytes on every machine (mke2fs -d would take over the host's directory order and inode times).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace space::tmpl {

struct ImageSpec {
  std::filesystem::path archive;             // tar; folders come before what lies in them, targets before hard links to them
  std::filesystem::path image;               // written: raw, sparse
  std::filesystem::path manifest;            // written: one line for each file, sorted by path
  std::uint32_t disk_mib = 4096;             // size of the file system
  std::map<std::string, std::string> files;  // path ("etc/space/x") → content: root's, 0644, in place of what the archive has there
};

struct ImageDigests {
  std::string tree;   // "sha256:…" of the manifest: path, type, mode, owner, size, content, attributes; no dates, no block numbers
  std::string image;  // "sha256:…" of the blocks that are not zero, with their places
};

// Entries below dev/ other than folders are left out: the guest's kernel makes its own. Others that are neither files, folders,
// links: template_image, and so is an archive whose paths leave the root.
Result<ImageDigests> make_image(const ImageSpec& spec);

// ImageDigests::image of an image that is there; reads its data and skips its holes.
Result<std::string> digest_of_image(const std::filesystem::path& path);

}  // namespace space::tmpl
