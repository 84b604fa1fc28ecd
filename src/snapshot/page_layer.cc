#include "snapshot/page_layer.h"

#include <algorithm>
#include <cassert>
#include <fmt/format.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/encoding.h"
#include "base/file.h"
#include "snapshot/little_endian.h"

namespace space::snapshot {
namespace {

constexpr std::string_view kLayerMagic = "SPCLAYR1";
constexpr std::size_t kChunkEntry = 24;
constexpr std::size_t kChunkBytes = kChunkPages * kPageBytes;
constexpr int kLevel = 1;  // zstd: most of what is to be gained, at a speed that does not hold a checkpoint up

tl::unexpected<Error> damaged(std::string_view what) {
  return fail(ErrorKind::corrupt, "layer_damaged", fmt::format("a stored layer of memory is damaged: {}", what),
              "restore the checkpoint from a backup");
}

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::size_t chunks_of(std::size_t pages) { return (pages + kChunkPages - 1) / kChunkPages; }
std::size_t chunk_bytes(std::size_t chunk, std::size_t pages) {
  return std::min<std::size_t>(kChunkPages, pages - chunk * kChunkPages) * kPageBytes;
}

}  // namespace

// The footer: magic, u32 pages, u32 chunks, u64 offset of the index, u64 checksum of the index, u64 checksum of the footer so far.
Result<std::uint64_t> layer_index_bytes(std::string_view footer, std::uint64_t blob_bytes) {
  if (footer.size() != kLayerFooterBytes || !footer.starts_with(kLayerMagic)) return damaged("it has no end");
  if (checksum(footer.substr(0, 32)) != get_number<std::uint64_t>(footer, 32)) return damaged("the checksum of its end");
  const std::uint64_t pages = get_number<std::uint32_t>(footer, 8), chunks = get_number<std::uint32_t>(footer, 12);
  const auto offset = get_number<std::uint64_t>(footer, 16);
  if (pages == 0 || pages > kMostPages || chunks != chunks_of(pages)) return damaged("its number of pages");
  const std::uint64_t bytes = chunks * kChunkEntry + pages * 4;
  if (blob_bytes < bytes + kLayerFooterBytes || offset != blob_bytes - bytes - kLayerFooterBytes) return damaged("where its index lies");
  return bytes;
}

Result<LayerIndex> parse_layer_index(std::string_view text, std::uint64_t blob_bytes) {
  if (text.size() < kLayerFooterBytes) return damaged("it has no end");
  const std::string_view footer = text.substr(text.size() - kLayerFooterBytes);
  const std::string_view index = text.substr(0, text.size() - kLayerFooterBytes);
  TRY(const std::uint64_t bytes, layer_index_bytes(footer, blob_bytes));
  if (index.size() != bytes || checksum(index) != get_number<std::uint64_t>(footer, 24)) return damaged("the checksum of its index");
  const std::size_t pages = get_number<std::uint32_t>(footer, 8), chunks = get_number<std::uint32_t>(footer, 12);
  const auto end = get_number<std::uint64_t>(footer, 16);
  LayerIndex out;
  out.chunks.reserve(chunks);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < chunks; ++i) {
    const std::size_t at = i * kChunkEntry;
    const auto flags = get_number<std::uint32_t>(index, at + 12);
    LayerIndex::Chunk chunk{get_number<std::uint64_t>(index, at), get_number<std::uint32_t>(index, at + 8), flags == 1,
                            get_number<std::uint64_t>(index, at + 16)};
    const std::size_t whole = chunk_bytes(i, pages);
    if (flags > 1 || chunk.offset != next || chunk.stored == 0 || (chunk.compressed ? chunk.stored >= whole : chunk.stored != whole))
      return damaged("a chunk's place");
    next += chunk.stored;
    out.chunks.push_back(chunk);
  }
  if (next != end) return damaged("the length of its chunks");
  out.pages.reserve(pages);
  for (std::size_t i = 0; i < pages; ++i) {
    const auto page = get_number<std::uint32_t>(index, chunks * kChunkEntry + i * 4);
    if (page >= kMostPages || (i != 0 && page <= out.pages.back())) return damaged("the order of its pages");
    out.pages.push_back(page);
  }
  return out;
}

Result<LayerWriter> LayerWriter::begin(BlobStore& store, Lease& lease) {
  LayerWriter writer;
  TRY(writer.blob_, store.create(lease));
  writer.chunk_.reserve(kChunkBytes);
  return writer;
}

Result<std::uint32_t> LayerWriter::add(std::uint32_t page, std::span<const std::byte> content) {
  assert(content.size() == kPageBytes && (index_.pages.empty() || page > index_.pages.back()));
  const auto position = static_cast<std::uint32_t>(index_.pages.size());
  index_.pages.push_back(page);
  chunk_.insert(chunk_.end(), content.begin(), content.end());
  if (chunk_.size() == kChunkBytes) TRY_VOID(flush());
  return position;
}

Result<> LayerWriter::flush() {
  if (chunk_.empty()) return {};
  std::vector<std::byte> packed(chunk_.size());
  // Worth it from an eighth on; a buffer that is smaller than the chunk makes zstd give up early on what does not compress.
  const std::size_t n = ZSTD_compress(packed.data(), chunk_.size() - chunk_.size() / 8, chunk_.data(), chunk_.size(), kLevel);
  const bool compressed = ZSTD_isError(n) == 0;
  const std::span<const std::byte> stored = compressed ? std::span<const std::byte>(packed).first(n) : std::span<const std::byte>(chunk_);
  TRY_VOID(blob_->write(stored));
  index_.chunks.push_back({offset_, static_cast<std::uint32_t>(stored.size()), compressed, checksum(stored)});
  offset_ += stored.size();
  chunk_.clear();
  return {};
}

Result<LayerRef> LayerWriter::finish() {
  assert(!index_.pages.empty());
  TRY_VOID(flush());
  std::string text;
  text.reserve(index_.chunks.size() * kChunkEntry + index_.pages.size() * 4 + kLayerFooterBytes);
  for (const LayerIndex::Chunk& chunk : index_.chunks) {
    put_number(text, chunk.offset);
    put_number(text, chunk.stored);
    put_number(text, std::uint32_t{chunk.compressed});
    put_number(text, chunk.checksum);
  }
  for (const std::uint32_t page : index_.pages) put_number(text, page);
  std::string footer(kLayerMagic);
  put_number(footer, static_cast<std::uint32_t>(index_.pages.size()));
  put_number(footer, static_cast<std::uint32_t>(index_.chunks.size()));
  put_number(footer, offset_);
  put_number(footer, checksum(std::string_view(text)));
  put_number(footer, checksum(std::string_view(footer)));
  TRY_VOID(blob_->write(as_bytes(text + footer)));
  TRY(BlobRef blob, blob_->commit());
  return LayerRef{std::move(blob), static_cast<std::uint32_t>(index_.pages.size())};
}

Result<std::unique_ptr<LayerReader>> LayerReader::open(BlobStore& store, std::string tenant, const LayerRef& layer) {
  std::unique_ptr<LayerReader> reader(new LayerReader(store, std::move(tenant), layer));
  auto file = store.descriptor(reader->tenant_, layer.blob);
  if (file) reader->file_ = std::move(*file);
  if (!file && file.error().code != "blob_remote") return fail(std::move(file).error());
  const std::uint64_t bytes = layer.blob.bytes;
  if (bytes < kLayerFooterBytes) return damaged("it is too short");
  std::string text(kLayerFooterBytes, '\0');
  TRY_VOID(reader->read(bytes - text.size(), std::as_writable_bytes(std::span(text))));
  TRY(const std::uint64_t index, layer_index_bytes(text, bytes));
  text.resize(index + kLayerFooterBytes);
  TRY_VOID(reader->read(bytes - text.size(), std::as_writable_bytes(std::span(text))));
  TRY(reader->index_, parse_layer_index(text, bytes));
  if (reader->index_.pages.size() != layer.pages) return damaged("it has another number of pages than its manifest says");
  return reader;
}

Result<> LayerReader::read(std::uint64_t offset, std::span<std::byte> out) {
  return file_ ? pread_all(file_, out, offset) : store_.get(tenant_, layer_.blob, offset, out);
}

Result<> LayerReader::load(std::size_t number) {
  if (number == loaded_) return {};
  const LayerIndex::Chunk& chunk = index_.chunks[number];
  const std::size_t whole = chunk_bytes(number, index_.pages.size());
  loaded_ = static_cast<std::size_t>(-1);
  std::vector<std::byte>& raw = chunk.compressed ? stored_ : content_;
  raw.resize(chunk.stored);
  TRY_VOID(read(chunk.offset, raw));
  if (checksum(std::span<const std::byte>(raw)) != chunk.checksum) return damaged("the checksum of a chunk");
  if (chunk.compressed) {
    content_.resize(whole);
    const std::size_t n = ZSTD_decompress(content_.data(), whole, stored_.data(), stored_.size());
    if (ZSTD_isError(n) != 0 || n != whole) return damaged("a chunk cannot be unpacked");
  }
  loaded_ = number;
  return {};
}

Result<std::span<const std::byte>> LayerReader::run(std::uint32_t position, std::uint32_t page, std::uint32_t count) {
  if (position >= index_.pages.size() || index_.pages[position] != page) return damaged("a page is not where the map says");
  const std::size_t number = position / kChunkPages, slot = position % kChunkPages;
  TRY_VOID(load(number));
  std::size_t n = std::min<std::size_t>({count, content_.size() / kPageBytes - slot});
  // Only pages that follow each other in the guest too.
  std::size_t same = 1;
  while (same < n && index_.pages[position + same] == page + same) ++same;
  return std::span<const std::byte>(content_).subspan(slot * kPageBytes, same * kPageBytes);
}

Result<std::span<const std::byte>> LayerReader::page(std::uint32_t position, std::uint32_t page) { return run(position, page, 1); }

}  // namespace space::snapshot
