// Whatever graph a VMM tells: a chain that ends, or an error.
#include <cstdint>
#include <cstdlib>

#include "vmm/block_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space;
  json::error_code error;
  const json::value graph = json::parse(std::string_view(reinterpret_cast<const char*>(data), size), error);
  if (error) return 0;
  const auto chain = vmm::disk_chain(graph, "disk1");
  if (chain ? chain->empty() || chain->front().node != "disk1" : chain.error().code != "qmp_protocol") std::abort();
  return 0;
}
