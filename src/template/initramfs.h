// The initramfs: a newc cpio archive (Linux, Documentation/driver-api/early-userspace/buffer-format.rst) with the agent as /init
// and the modules that it inserts. The same input gives the same bytes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace space::tmpl {

struct InitramfsFile {
  std::string path;  // without a leading slash; its folders are made
  unsigned mode = 0644;
  std::string content;
};

// Sorted by path, owner 0:0, dates 0. In memory: an initramfs is a few MiB.
Result<std::string> make_cpio(std::vector<InitramfsFile> files);

// What a kernel runs of an ELF file: its segments, without sections, symbols and debugging information (some 90 % of the agent).
// Refused when it is not a 64-bit ELF program or names an interpreter: the initramfs holds no libraries.
Result<std::string> loadable_part(std::string program);

// /init from `agent`, /modules/order and the modules that it names from `modules`.
Result<std::string> make_initramfs(const std::filesystem::path& agent, const std::filesystem::path& modules);

}  // namespace space::tmpl
