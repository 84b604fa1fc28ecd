// Where each page of a checkpoint's memory lies: in a layer, all zeros, or (not mentioned) in the base. Complete, so that no read
// walks ancestors. Found in O(1) by a two-level table as of a processor's page tables; memory grows with what was touched.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "snapshot/guest_memory.h"

namespace space::snapshot {

struct PagePlace {
  enum class Kind : std::uint32_t { base, zero, layer };
  Kind kind = Kind::base;
  std::uint32_t layer = 0;     // index into the checkpoint's list of layers
  std::uint32_t position = 0;  // of the page within the layer
  bool operator==(const PagePlace&) const = default;
};

struct PageExtent {  // `count` pages from `first`, at positions that follow each other
  std::uint32_t first = 0, count = 0;
  PagePlace place;
  bool operator==(const PageExtent&) const = default;
};

inline constexpr std::uint64_t kMostPages = 1ULL << 24;  // 64 GiB
inline constexpr std::uint32_t kMostLayers = 4096;

class PageMap {
 public:
  explicit PageMap(std::uint64_t pages);
  PageMap(const PageMap& other);
  PageMap& operator=(const PageMap& other);
  PageMap(PageMap&&) noexcept = default;
  PageMap& operator=(PageMap&&) noexcept = default;

  std::uint64_t pages() const { return pages_; }
  PagePlace at(std::uint64_t page) const;  // page < pages()
  void set(std::uint64_t page, PagePlace place);
  std::vector<PageExtent> extents() const;  // in order of pages; base is left out
  // Pages that lie in each layer; zero pages are not counted.
  std::vector<std::uint64_t> pages_of_layers(std::uint32_t layers) const;
  void renumber(const std::vector<std::uint32_t>& new_numbers);  // layer i becomes new_numbers[i]; every used one has a new number

  // Text form: magic, version, pages, count of extents, then 16 bytes each, little-endian. Strict and bounded: order, overlaps,
  // layer numbers below `layers` and places are checked. corrupt/page_map_damaged.
  std::string encode() const;
  static Result<PageMap> decode(std::string_view bytes, std::uint64_t pages, std::uint32_t layers);

 private:
  static constexpr std::size_t kFan = 512;
  using Leaf = std::array<std::uint64_t, kFan>;  // kind and layer above, position below; 0 is base
  std::uint64_t pages_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
};

}  // namespace space::snapshot
