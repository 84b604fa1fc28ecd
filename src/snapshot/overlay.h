// An empty qcow2 overlay: the next generation of a disk. Written by hand, so that no tool of the host ever opens an image; what lies
// below it is said when a VMM opens it, never by a name inside. Format: docs/interop/qcow2.txt of QEMU.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace space::snapshot {

// Into `file`, which is new and empty. `bytes` is the disk's size, a multiple of 512, at most 16 TiB. Clusters of 128 KiB with
// subclusters of 4 KiB (a small write copies 4 KiB from below) and lazy reference counts, as the base's own overlay has them.
// Takes 16 KiB of the disk at most. Not durable by itself: an overlay that a power cut leaves half-made belongs to nobody.
Result<> write_empty_overlay(const Fd& file, std::uint64_t bytes);

}  // namespace space::snapshot
