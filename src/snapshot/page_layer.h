// A layer: pages of guest memory in one blob. Positions count from 0 in ascending order of pages; 32 pages make a chunk, stored
// with zstd where that is smaller, each with an XXH3 checksum that every read checks. The index at the end finds a page's chunk by
// arithmetic. docs/snapshots.md has the format.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/blob_store.h"
#include "snapshot/page_map.h"

namespace space::snapshot {

inline constexpr std::uint32_t kChunkPages = 32;

struct LayerRef {
  BlobRef blob;
  std::uint32_t pages = 0;
  bool operator==(const LayerRef&) const = default;
};

// The end of a layer's blob, parsed.
struct LayerIndex {
  struct Chunk {
    std::uint64_t offset = 0;  // in the blob
    std::uint32_t stored = 0;  // bytes
    bool compressed = false;
    std::uint64_t checksum = 0;  // XXH3 of the stored bytes
  };
  std::vector<Chunk> chunks;
  std::vector<std::uint32_t> pages;  // the guest's page at each position, ascending
};

inline constexpr std::size_t kLayerFooterBytes = 40;
// `footer`: the last bytes of a blob of `blob_bytes`. Gives the bytes of the index, which end where the footer begins.
Result<std::uint64_t> layer_index_bytes(std::string_view footer, std::uint64_t blob_bytes);
// Strict: every chunk lies inside the blob, in order, without gaps. corrupt/layer_damaged.
Result<LayerIndex> parse_layer_index(std::string_view index_and_footer, std::uint64_t blob_bytes);

class LayerWriter {
 public:
  static Result<LayerWriter> begin(BlobStore& store, Lease& lease);
  // Pages come in ascending order. Returns the position.
  Result<std::uint32_t> add(std::uint32_t page, std::span<const std::byte> content);
  Result<LayerRef> finish();  // durable; at least one page was added

 private:
  LayerWriter() = default;
  Result<> flush();
  std::unique_ptr<BlobWriter> blob_;
  LayerIndex index_;
  std::vector<std::byte> chunk_;
  std::uint64_t offset_ = 0;
};

// Reads pages of one layer; keeps the last chunk, so reading positions in order decodes each chunk once.
class LayerReader {
 public:
  static Result<std::unique_ptr<LayerReader>> open(BlobStore& store, std::string tenant, const LayerRef& layer);
  const LayerIndex& index() const { return index_; }
  // The content at `position`, which must hold `page`. Valid until the next call. corrupt/layer_damaged.
  Result<std::span<const std::byte>> page(std::uint32_t position, std::uint32_t page);
  // As many pages of one chunk from `position` as there are, at most `count`: their content, one after another.
  Result<std::span<const std::byte>> run(std::uint32_t position, std::uint32_t page, std::uint32_t count);

 private:
  LayerReader(BlobStore& store, std::string tenant, LayerRef layer) : store_(store), tenant_(std::move(tenant)), layer_(std::move(layer)) {}
  Result<> load(std::size_t chunk);
  Result<> read(std::uint64_t offset, std::span<std::byte> out);
  BlobStore& store_;
  std::string tenant_;
  LayerRef layer_;
  Fd file_;  // where the store has the bytes on this machine
  LayerIndex index_;
  std::vector<std::byte> stored_, content_;
  std::size_t loaded_ = static_cast<std::size_t>(-1);
};

}  // namespace space::snapshot
