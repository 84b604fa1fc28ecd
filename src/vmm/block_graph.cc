#include "vmm/block_graph.h"

#include <fmt/format.h>

#include <map>

namespace space::vmm {
namespace {

constexpr std::size_t kMostNodes = 512, kMostChain = 64, kLongestName = 31;

tl::unexpected<Error> odd(std::string_view what) {
  return fail(ErrorKind::unavailable, "qmp_protocol", fmt::format("the VMM's answer has no {}", what),
              "delete the sandbox; its VMM cannot be trusted");
}

const json::value* field(const json::value& value, std::string_view name) {
  return value.is_object() ? value.get_object().if_contains(name) : nullptr;
}

std::optional<std::int64_t> number(const json::value& value, std::string_view name) {
  const json::value* found = field(value, name);
  if (!found) return std::nullopt;
  if (found->is_int64()) return found->get_int64();
  if (found->is_uint64() && found->get_uint64() <= INT64_MAX) return static_cast<std::int64_t>(found->get_uint64());
  return std::nullopt;
}

std::string_view text(const json::value& value, std::string_view name) {
  const json::value* found = field(value, name);
  return found && found->is_string() ? std::string_view(found->get_string()) : std::string_view();
}

const json::array* list(const json::value& value, std::string_view name) {
  const json::value* found = field(value, name);
  return found && found->is_array() && found->get_array().size() <= kMostNodes ? &found->get_array() : nullptr;
}

}  // namespace

Result<std::vector<DiskNode>> disk_chain(const json::value& graph, std::string_view top) {
  const json::array* nodes = list(graph, "nodes");
  const json::array* edges = list(graph, "edges");
  if (!nodes || !edges) return odd("graph of its disks");
  std::map<std::int64_t, std::string> names;
  for (const json::value& node : *nodes) {
    const auto id = number(node, "id");
    const std::string_view name = text(node, "name");
    if (id && text(node, "type") == "block-driver" && !name.empty() && name.size() <= kLongestName) names.emplace(*id, name);
  }
  struct Below {
    std::optional<std::int64_t> backing, file;
  };
  std::map<std::int64_t, Below> below;
  for (const json::value& edge : *edges) {
    const auto parent = number(edge, "parent"), child = number(edge, "child");
    if (!parent || !child) return odd("graph of its disks");
    const std::string_view name = text(edge, "name");
    if (name == "backing") below[*parent].backing = child;
    if (name == "file") below[*parent].file = child;
  }
  std::optional<std::int64_t> at;
  for (const auto& [id, name] : names)
    if (name == top) at = id;
  std::vector<DiskNode> chain;
  while (at) {
    const auto name = names.find(*at);
    const auto under = below.find(*at);
    const auto file = under == below.end() || !under->second.file ? names.end() : names.find(*under->second.file);
    if (name == names.end() || file == names.end() || chain.size() == kMostChain) return odd("chain of images that ends");
    chain.push_back({name->second, file->second});
    at = under->second.backing;
  }
  if (chain.empty()) return odd("top of its disk");
  return chain;
}

}  // namespace space::vmm
