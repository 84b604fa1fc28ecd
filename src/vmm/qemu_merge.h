// The process that merges generations of a disk: the VMM's own program without a machine, in a jail like any other VMM, because it
// reads images that a guest may have written. It has those images by descriptor and nothing else.
#pragma once

#include "vmm/qemu_arguments.h"

namespace space::vmm {

// Names of its images, bottom to top: the new one, then the generations, then a scratch image that nothing is written to but its head
// (a job that ends at the highest image would copy in units that are too large).
inline constexpr const char* kMergeLowest = "into";
inline constexpr const char* kMergeLowestFile = "file-into";
inline constexpr const char* kMergeHighest = "highest";
inline constexpr const char* kMergeTop = "scratch";

// `control`: a listening stream socket. Errors as qemu_launch. Blocks shortly.
Result<QemuLaunch> qemu_merge_launch(const DiskMerge& merge, Fd control);

}  // namespace space::vmm
