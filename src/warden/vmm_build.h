// A VMM build: the VMM's program, the libraries it needs and its firmware, copied once into a folder that becomes the root of every
// jail. Named by the digest of all of it, since a saved VM state loads only into the build that wrote it.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>

#include "base/result.h"

namespace space::warden {

struct VmmBuild {
  std::string digest;          // 64 hex digits
  std::string version;         // of the program's own `--version`, "unknown" when it says none
  std::filesystem::path root;  // <builds>/<digest>
};

// Reads `program` and what belongs to it on the host and makes the folder unless it is there. `tool_uid` runs the program and
// its loader to ask them. Blocks for some 100 ms.
Result<VmmBuild> prepare_build(const std::filesystem::path& program, const std::filesystem::path& builds, uid_t tool_uid);

// The folder of an earlier build; `vmm_build_unknown` when it is not kept.
Result<std::filesystem::path> find_build(const std::filesystem::path& builds, const std::string& digest);

// The interpreter (PT_INTERP) of an ELF program; empty for a static one.
Result<std::string> elf_interpreter(const std::filesystem::path& program);

// "QEMU emulator version 7.2.22 (Debian …)" → "7.2.22"
std::string version_in(std::string_view text);

}  // namespace space::warden
