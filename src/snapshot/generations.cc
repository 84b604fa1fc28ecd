#include "snapshot/generations.h"

#include <algorithm>

namespace space::snapshot {

std::size_t most_generations(std::size_t base_files) {
  const std::size_t others = base_files + 1;  // the one that is written
  return std::max(kMostFiles > others ? kMostFiles - others : 0, kFewGenerations + 1);
}

std::optional<MergeChoice> choose_merge(std::span<const BlobRef> generations) {
  if (generations.size() <= kFewGenerations) return std::nullopt;
  std::size_t first = generations.size();
  std::uint64_t bytes = 0;
  while (first > 0 && (first >= kFewGenerations || generations[first - 1].bytes <= bytes)) bytes += generations[--first].bytes;
  return MergeChoice{first, generations.size() - first};
}

}  // namespace space::snapshot
