// A guest's memory as a file: only pages that are not all zeros are there, the rest is a hole. A VM never maps the file itself
// but a sealed memfd made of it: private maps of a sealed memfd work, while shared writable maps, writes and hole punching are
// refused by the kernel (memfd_create(2)), so that a VMM that was taken over cannot alter the base of others.
//
// The digest is SHA-256 over, for each stored page in order, its index as a 64-bit little-endian number and its 4096 bytes. So it
// costs as much as there is data, and stands for the whole content whatever the holes of the file system are.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace space::snapshot {

inline constexpr std::uint64_t kPageBytes = 4096;

struct MemoryImage {
  std::uint64_t bytes = 0;  // of the guest's memory, a multiple of the page size
  std::uint64_t pages = 0;  // stored ones
  std::string digest;       // "sha256:…"
};

// An empty memfd of `bytes` that can be sealed later, for a VM that shares its memory (base making).
Result<Fd> new_guest_memory(std::uint64_t bytes);

// Copies the pages of `memory` that are not zero into `into`, a new file; durable when it returns. Blocks.
Result<MemoryImage> store_memory_image(const Fd& memory, std::uint64_t bytes, const Fd& into);

// A sealed memfd with the content of `file`. corrupt/memory_image_corrupt when it is not what `expected` says. Blocks.
Result<Fd> load_memory_image(const Fd& file, const MemoryImage& expected);

}  // namespace space::snapshot
