// What is said to QEMU about the generations of a guest's disk: the next one on top, others in place of the frozen ones, and several
// merged into one (docs/vm.md, "Disks"). All images come as descriptors and are named here, never by what stands in one of them.
#pragma once

#include <string>
#include <vector>

#include "vmm/block_graph.h"
#include "vmm/qemu_saving.h"

namespace space::vmm {

// The top of the guest's only disk, as the VMM names it. It changes by a switch alone.
Task<std::string> qemu_top_node(QemuAsk ask);

// Opens the empty image `file` (read and write) beside the disk.
Task<DiskNode> qemu_add_overlay(QemuAsk ask, const Fd& file);
// Closes it again. An error when something stands on it or reads it.
Task<> qemu_drop_overlay(QemuAsk ask, DiskNode overlay);

// Puts that node on top of the disk, whose top is `top` now. The VM may run: QEMU holds its requests back for that moment.
QmpCommand qemu_switch_overlay(std::string top, std::string node);

// Opens `files` (for reading, bottom to top) over the lowest `base_files` images of the disk, lets its top stand on them, and closes
// what it stood on before. An error leaves the disk as it was.
Task<> qemu_replace_generations(QemuAsk ask, std::size_t base_files, std::vector<Fd> files);

// In a process that qemu_merge_launch describes: writes what its generations hold into its lowest image, and says when all of it has
// left QEMU's own caches.
Task<> qemu_merge(QemuAsk ask);

}  // namespace space::vmm
