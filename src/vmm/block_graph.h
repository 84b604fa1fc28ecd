// Which images a guest's disk stands on, as the VMM tells it (x-debug-query-block-graph): nodes with numbers, and edges between them
// that are called "backing" or "file". The VMM may be hostile; a lie harms its own VM alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace space::vmm {

struct DiskNode {
  std::string node;  // of the image
  std::string file;  // of the file that it reads
};

// The images from `top` down, each the one that the one before stands on. unavailable/qmp_protocol for an answer that is no graph, or
// in which `top` is not there or one image stands on itself.
Result<std::vector<DiskNode>> disk_chain(const json::value& graph, std::string_view top);

}  // namespace space::vmm
