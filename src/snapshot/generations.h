// Which generations of a disk are merged, and when. A VM keeps at most kMostFiles files open for its disk: the base's own, the frozen
// generations above them, and the one that it writes. So a disk has few frozen generations however often it was saved, and each byte
// of a long life is copied a few dozen times at most: a merge takes the newest ones and goes on downwards only as long as that costs
// no more than what it has taken already.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "snapshot/blob_store.h"

namespace space::snapshot {

inline constexpr std::size_t kMostFiles = 8;
// Frozen generations that a merge leaves at most.
inline constexpr std::size_t kFewGenerations = 3;

// Frozen generations that a disk may have above a base of so many files; at least kFewGenerations + 1.
std::size_t most_generations(std::size_t base_files);

// Numbers [first, first + count) of `generations` (bottom to top) to be merged into one; nothing when there are too few of them to
// bother: no more than kFewGenerations.
struct MergeChoice {
  std::size_t first = 0, count = 0;
};
std::optional<MergeChoice> choose_merge(std::span<const BlobRef> generations);

}  // namespace space::snapshot
