// Any bytes as a layer's index and as a page map: no crash, no memory beyond what the input's length allows, and a map that is
// accepted is written back as the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "snapshot/guest_memory.h"
#include "snapshot/page_layer.h"
#include "snapshot/page_map.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::snapshot;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::uint64_t blob_bytes : {std::uint64_t{size}, std::uint64_t{size} + 4096}) {
    const auto index = parse_layer_index(text, blob_bytes);
    if (!index && index.error().code != "layer_damaged") std::abort();
    if (index && index->pages.size() * 4 > size) std::abort();
  }
  const auto map = PageMap::decode(text, 4096, 3);
  if (!map && map.error().code != "page_map_damaged") std::abort();
  if (map && map->encode() != text) std::abort();
  (void)find_guest_memory(text, 1 << 20);
  return 0;
}
