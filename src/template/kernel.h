// The guest's kernel out of Debian's package: an uncompressed ELF image that a VMM can start directly, and the modules that
// the agent inserts before it can see its disk and its network.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::tmpl {

// The modules in the order in which they are inserted; Debian's cloud kernel has ext4 built in, no virtio, and no FUSE, by which a
// sandbox has a volume mounted.
const std::vector<std::string>& guest_modules();

// The ELF kernel inside a bzImage (Linux, Documentation/x86/boot.rst: payload_offset, payload_length), whatever it is
// compressed with. template_kernel when it holds none.
Result<std::string> uncompressed_kernel(std::string_view bz_image);

// modules/order: their names, one a line.
std::string guest_module_order();

// Writes `into`/vmlinux, modules/*.ko and modules/order from a linux-image package. `into` exists.
Result<> unpack_kernel_package(const std::filesystem::path& deb, const std::filesystem::path& into);

}  // namespace space::tmpl
