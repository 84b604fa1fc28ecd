#include "snapshot/page_map.h"

#include <cassert>
#include <fmt/format.h>

#include "snapshot/little_endian.h"

namespace space::snapshot {
namespace {

constexpr std::string_view kMapMagic = "SPCPMAP1";
constexpr std::size_t kHeadBytes = 24, kExtentBytes = 16;

// In a leaf and in the stored form: 0 base, 1 zero, 2 + i layer i; the position in the lower half.
std::uint64_t pack(PagePlace place) {
  switch (place.kind) {
    case PagePlace::Kind::base:
      return 0;
    case PagePlace::Kind::zero:
      return 1ULL << 32;
    case PagePlace::Kind::layer:
      return (2ULL + place.layer) << 32 | place.position;
  }
  return 0;
}

PagePlace unpack(std::uint64_t word) {
  const auto upper = static_cast<std::uint32_t>(word >> 32);
  if (upper == 0) return {};
  if (upper == 1) return {PagePlace::Kind::zero, 0, 0};
  return {PagePlace::Kind::layer, upper - 2, static_cast<std::uint32_t>(word)};
}

bool follows(const PageExtent& extent, std::uint64_t page, const PagePlace& place) {
  if (extent.first + std::uint64_t{extent.count} != page || extent.place.kind != place.kind) return false;
  return place.kind != PagePlace::Kind::layer ||
         (extent.place.layer == place.layer && extent.place.position + extent.count == place.position);
}

}  // namespace

PageMap::PageMap(std::uint64_t pages) : pages_(pages), leaves_((pages + kFan - 1) / kFan) { assert(pages <= kMostPages); }

PageMap::PageMap(const PageMap& other) : pages_(other.pages_), leaves_(other.leaves_.size()) {
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (other.leaves_[i]) leaves_[i] = std::make_unique<Leaf>(*other.leaves_[i]);
}

PageMap& PageMap::operator=(const PageMap& other) {
  if (this != &other) *this = PageMap(other);
  return *this;
}

PagePlace PageMap::at(std::uint64_t page) const {
  assert(page < pages_);
  const auto& leaf = leaves_[page / kFan];
  return leaf ? unpack((*leaf)[page % kFan]) : PagePlace{};
}

void PageMap::set(std::uint64_t page, PagePlace place) {
  assert(page < pages_);
  auto& leaf = leaves_[page / kFan];
  if (!leaf) {
    if (place.kind == PagePlace::Kind::base) return;
    leaf = std::make_unique<Leaf>();
    leaf->fill(0);
  }
  (*leaf)[page % kFan] = pack(place);
}

std::vector<PageExtent> PageMap::extents() const {
  std::vector<PageExtent> out;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i]) continue;
    for (std::size_t j = 0; j < kFan; ++j) {
      const PagePlace place = unpack((*leaves_[i])[j]);
      if (place.kind == PagePlace::Kind::base) continue;
      const std::uint64_t page = i * kFan + j;
      if (!out.empty() && follows(out.back(), page, place)) {
        ++out.back().count;
      } else {
        out.push_back({static_cast<std::uint32_t>(page), 1, place});
      }
    }
  }
  return out;
}

std::vector<std::uint64_t> PageMap::pages_of_layers(std::uint32_t layers) const {
  std::vector<std::uint64_t> out(layers);
  for (const PageExtent& extent : extents())
    if (extent.place.kind == PagePlace::Kind::layer && extent.place.layer < layers) out[extent.place.layer] += extent.count;
  return out;
}

void PageMap::renumber(const std::vector<std::uint32_t>& new_numbers) {
  for (auto& leaf : leaves_) {
    if (!leaf) continue;
    for (std::uint64_t& word : *leaf) {
      PagePlace place = unpack(word);
      if (place.kind != PagePlace::Kind::layer) continue;
      place.layer = new_numbers.at(place.layer);
      word = pack(place);
    }
  }
}

std::string PageMap::encode() const {
  const auto all = extents();
  std::string out(kMapMagic);
  out.reserve(kHeadBytes + all.size() * kExtentBytes);
  put_number(out, pages_);
  put_number(out, static_cast<std::uint64_t>(all.size()));
  for (const PageExtent& extent : all) {
    const std::uint64_t word = pack(extent.place);
    put_number(out, extent.first);
    put_number(out, extent.count);
    put_number(out, static_cast<std::uint32_t>(word >> 32));
    put_number(out, static_cast<std::uint32_t>(word));
  }
  return out;
}

Result<PageMap> PageMap::decode(std::string_view bytes, std::uint64_t pages, std::uint32_t layers) {
  const auto damaged = [](std::string_view what) {
    return fail(ErrorKind::corrupt, "page_map_damaged", fmt::format("a stored page map is damaged: {}", what),
                "restore the checkpoint from a backup");
  };
  if (pages > kMostPages || layers > kMostLayers) return damaged("its size");
  if (bytes.size() < kHeadBytes || !bytes.starts_with(kMapMagic)) return damaged("no page map");
  const auto count = get_number<std::uint64_t>(bytes, 16);
  if (get_number<std::uint64_t>(bytes, 8) != pages) return damaged("it is of another memory size");
  if (count > pages || bytes.size() != kHeadBytes + count * kExtentBytes) return damaged("its length");
  PageMap map(pages);
  std::uint64_t next = 0;
  PageExtent before;
  for (std::size_t at = kHeadBytes; at < bytes.size(); at += kExtentBytes) {
    PageExtent extent{get_number<std::uint32_t>(bytes, at), get_number<std::uint32_t>(bytes, at + 4), {}};
    const auto upper = get_number<std::uint32_t>(bytes, at + 8), lower = get_number<std::uint32_t>(bytes, at + 12);
    if (extent.count == 0 || extent.first < next || extent.first + std::uint64_t{extent.count} > pages)
      return damaged("the order of its ranges");
    if (upper == 0 || upper - 1 > layers || (upper == 1 && lower != 0) || lower + std::uint64_t{extent.count} > kMostPages)
      return damaged("a place");
    extent.place = unpack(std::uint64_t{upper} << 32 | lower);
    if (at != kHeadBytes && follows(before, extent.first, extent.place)) return damaged("ranges that should be one");
    for (std::uint32_t i = 0; i < extent.count; ++i) {
      PagePlace place = extent.place;
      if (place.kind == PagePlace::Kind::layer) place.position += i;
      map.set(extent.first + i, place);
    }
    next = extent.first + std::uint64_t{extent.count};
    before = extent;
  }
  return map;
}

}  // namespace space::snapshot
