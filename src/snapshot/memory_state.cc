#include "snapshot/memory_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace space::snapshot {
namespace {

constexpr std::uint64_t kInMemory = 256 << 20;  // bytes of captured pages that stay out of the file system
constexpr std::size_t kStateBytes = 1 << 20;
constexpr std::size_t kCaptureBytes = 128 << 10;
constexpr std::size_t kManyLayers = 64, kFewLayers = 32;

bool is_zero(std::span<const std::byte> page) {
  return page[0] == std::byte{0} && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0;
}
bool same(std::span<const std::byte> a, std::span<const std::byte> b) { return std::memcmp(a.data(), b.data(), kPageBytes) == 0; }

// The content that a page had at the parent, or in the base. Layers are opened when they are first needed.
class Before {
 public:
  Before(BlobStore& store, const std::string& tenant, const MemoryState* parent) : store_(store), tenant_(tenant), parent_(parent) {
    if (parent_) readers_.resize(parent_->layers.size());
  }
  // nullopt: the base's.
  Result<std::optional<std::span<const std::byte>>> page(std::uint64_t page) {
    static constexpr std::array<std::byte, kPageBytes> kZeros{};
    const PagePlace place = parent_ ? parent_->map.at(page) : PagePlace{};
    if (place.kind == PagePlace::Kind::base) return std::nullopt;
    if (place.kind == PagePlace::Kind::zero) return std::span<const std::byte>(kZeros);
    auto& reader = readers_.at(place.layer);
    if (!reader) {
      TRY(reader, LayerReader::open(store_, tenant_, parent_->layers[place.layer]));
    }
    TRY(const auto content, reader->page(place.position, static_cast<std::uint32_t>(page)));
    return content;
  }

 private:
  BlobStore& store_;
  const std::string& tenant_;
  const MemoryState* parent_;
  std::vector<std::unique_ptr<LayerReader>> readers_;
};

// Layers whose pages are to be written again into the new one: a long chain keeps at most kManyLayers, so that a load opens few files
// and old bytes can go. Those with the fewest pages, so it costs at most half of all pages once in so many checkpoints.
std::vector<bool> layers_to_merge(const MemoryState& state) {
  std::vector<bool> merge(state.layers.size());
  if (state.layers.size() < kManyLayers) return merge;
  const auto pages = state.map.pages_of_layers(static_cast<std::uint32_t>(state.layers.size()));
  std::vector<std::size_t> order(pages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return pages[a] < pages[b]; });
  for (std::size_t i = 0; i < order.size() - kFewLayers; ++i) merge[order[i]] = true;
  return merge;
}

// Takes the pages of one new layer in ascending order and notes in the map where they came to lie.
class NewLayer {
 public:
  NewLayer(BlobStore& store, Lease& lease, MemoryState& state)
      : store_(store), lease_(lease), state_(state), number_(static_cast<std::uint32_t>(state.layers.size())) {}
  Result<> add(std::uint64_t page, std::span<const std::byte> content) {
    if (!writer_) {
      TRY(writer_, LayerWriter::begin(store_, lease_));
    }
    TRY(const std::uint32_t position, writer_->add(static_cast<std::uint32_t>(page), content));
    state_.map.set(page, {PagePlace::Kind::layer, number_, position});
    return {};
  }
  // The bytes it has in the store; 0 without a page.
  Result<std::uint64_t> finish() {
    if (!writer_) return std::uint64_t{0};
    TRY(LayerRef layer, writer_->finish());
    state_.layers.push_back(std::move(layer));
    return state_.layers.back().blob.bytes;
  }

 private:
  BlobStore& store_;
  Lease& lease_;
  MemoryState& state_;
  std::uint32_t number_;
  std::optional<LayerWriter> writer_;
};

// Pages outside `ranges` that lie in a layer to be merged, ascending.
std::vector<std::uint64_t> pages_to_move(const PageMap& map, const std::vector<bool>& merge, std::span<const PageRange> ranges) {
  std::vector<std::uint64_t> out;
  if (std::find(merge.begin(), merge.end(), true) == merge.end()) return out;
  std::size_t next = 0;
  for (const PageExtent& extent : map.extents()) {
    if (extent.place.kind != PagePlace::Kind::layer || !merge[extent.place.layer]) continue;
    for (std::uint64_t page = extent.first; page < extent.first + std::uint64_t{extent.count}; ++page) {
      while (next < ranges.size() && ranges[next].first + ranges[next].count <= page) ++next;
      if (next == ranges.size() || page < ranges[next].first) out.push_back(page);
    }
  }
  return out;
}

// Leaves out layers that no page lies in any more.
void drop_unused(MemoryState& state) {
  const auto used = state.map.pages_of_layers(static_cast<std::uint32_t>(state.layers.size()));
  std::vector<std::uint32_t> numbers(state.layers.size());
  std::vector<LayerRef> layers;
  for (std::size_t i = 0; i < used.size(); ++i) {
    numbers[i] = static_cast<std::uint32_t>(layers.size());
    if (used[i] != 0) layers.push_back(std::move(state.layers[i]));
  }
  if (layers.size() != numbers.size()) state.map.renumber(numbers);
  state.layers = std::move(layers);
}

}  // namespace

Result<CapturedPages> capture(const GuestMemory& memory, DirtySet dirty, const std::string& spool) {
  const std::uint64_t bytes = count_pages(dirty.ranges) * kPageBytes;
  CapturedPages out;
  if (bytes <= kInMemory) {
    out.file = Fd(::memfd_create("captured", MFD_CLOEXEC));
    if (!out.file) return fail_errno(errno, "make a memory file for captured pages");
  } else {
    TRY(out.file, open_file(spool, O_TMPFILE | O_RDWR));
  }
  // Ranges are many and short, and the guest stands still: few calls, and a buffer that stays in the processor's cache.
  std::vector<std::byte> buffer(kCaptureBytes);
  std::uint64_t at = 0;
  std::size_t filled = 0;
  const auto flush = [&]() -> Result<> {
    TRY_VOID(pwrite_all(out.file, std::span(buffer).first(filled), at));
    at += std::exchange(filled, 0);
    return {};
  };
  for (const PageRange& range : dirty.ranges) {
    for (std::uint64_t done = 0; done < range.count;) {
      const std::uint64_t pages = std::min<std::uint64_t>(range.count - done, (buffer.size() - filled) / kPageBytes);
      TRY_VOID(memory.read(range.first + done, std::span(buffer).subspan(filled, pages * kPageBytes)));
      filled += pages * kPageBytes;
      done += pages;
      if (filled == buffer.size()) TRY_VOID(flush());
    }
  }
  TRY_VOID(flush());
  out.dirty = std::move(dirty);
  return out;
}

Result<StoredMemory> store_memory(BlobStore& store, Lease& lease, const CapturedPages& pages, const Fd& base, const MemoryState* parent) {
  struct stat st {};
  if (::fstat(base.get(), &st) != 0) return fail_errno(errno, "fstat a base");
  const auto memory_bytes = static_cast<std::uint64_t>(st.st_size);
  if (parent && parent->map.pages() * kPageBytes != memory_bytes)
    return fail(ErrorKind::internal, "memory_size_differs", "a checkpoint and its base have different memory sizes");
  TRY(const Mapping base_map, Mapping::of(base, memory_bytes));
  if (parent) {
    for (const LayerRef& layer : parent->layers) TRY_VOID(lease.keep(layer.blob));
  }
  StoredMemory out{parent ? *parent : MemoryState(memory_bytes), 0, 0};
  MemoryState& state = out.state;
  if (pages.dirty.since_load && parent) {
    // What is not dirty has the base's content now, whatever the parent had there.
    state.map = PageMap(memory_bytes / kPageBytes);
    for (const PageRange& range : pages.dirty.ranges)
      for (std::uint64_t i = 0; i < range.count; ++i) state.map.set(range.first + i, parent->map.at(range.first + i));
  }
  Before before(store, lease.tenant(), parent);
  const std::vector<bool> merge = layers_to_merge(state);
  const std::vector<std::uint64_t> moving = pages_to_move(state.map, merge, pages.dirty.ranges);
  NewLayer layer(store, lease, state);
  std::size_t moved = 0;
  const auto move_up_to = [&](std::uint64_t end) -> Result<> {
    for (; moved < moving.size() && moving[moved] < end; ++moved) {
      TRY(const auto content, before.page(moving[moved]));
      TRY_VOID(layer.add(moving[moved], *content));
    }
    return {};
  };
  std::vector<std::byte> buffer(kStateBytes);
  std::uint64_t at = 0;
  for (const PageRange& range : pages.dirty.ranges) {
    if (range.first + range.count > state.map.pages())
      return fail(ErrorKind::internal, "outside_guest_memory", "captured pages lie outside the guest's memory");
    for (std::uint64_t done = 0; done < range.count;) {
      const std::uint64_t count = std::min<std::uint64_t>(range.count - done, buffer.size() / kPageBytes);
      TRY_VOID(pread_all(pages.file, std::span(buffer).first(count * kPageBytes), at));
      at += count * kPageBytes;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t page = range.first + done + i;
        const std::span<const std::byte> now(buffer.data() + i * kPageBytes, kPageBytes);
        const auto in_base = base_map.bytes().subspan(page * kPageBytes, kPageBytes);
        TRY_VOID(move_up_to(page));  // first: it uses the same readers
        TRY(const auto old, before.page(page));
        if (same(now, old.value_or(in_base))) {
          const PagePlace place = state.map.at(page);
          if (place.kind == PagePlace::Kind::layer && merge[place.layer]) TRY_VOID(layer.add(page, now));
          continue;
        }
        ++out.changed_pages;
        if (same(now, in_base)) {
          state.map.set(page, {});
        } else if (is_zero(now)) {
          state.map.set(page, {PagePlace::Kind::zero, 0, 0});
        } else {
          TRY_VOID(layer.add(page, now));
        }
      }
      done += count;
    }
  }
  TRY_VOID(move_up_to(state.map.pages()));
  TRY(out.stored_bytes, layer.finish());
  drop_unused(state);
  return out;
}

Result<> load_memory(BlobStore& store, const std::string& tenant, const MemoryState& state, const GuestMemory& into) {
  if (state.map.pages() != into.pages())
    return fail(ErrorKind::corrupt, "memory_size_differs", "a checkpoint's memory has another size than the VM's");
  auto extents = state.map.extents();
  // Layer by layer, so that each chunk is read and unpacked once and in order.
  std::stable_sort(extents.begin(), extents.end(), [](const PageExtent& a, const PageExtent& b) {
    return std::pair(a.place.kind, a.place.layer) < std::pair(b.place.kind, b.place.layer);
  });
  const std::vector<std::byte> zeros(64 * kPageBytes);
  std::unique_ptr<LayerReader> reader;
  std::uint32_t open = 0;
  for (const PageExtent& extent : extents) {
    if (extent.place.kind == PagePlace::Kind::zero) {
      for (std::uint32_t done = 0; done < extent.count;) {
        const auto count = std::min<std::uint32_t>(extent.count - done, 64);
        TRY_VOID(into.write(extent.first + done, std::span(zeros).first(count * kPageBytes)));
        done += count;
      }
      continue;
    }
    if (!reader || open != extent.place.layer) {
      open = extent.place.layer;
      TRY(reader, LayerReader::open(store, tenant, state.layers.at(open)));
    }
    for (std::uint32_t done = 0; done < extent.count;) {
      TRY(const auto content, reader->run(extent.place.position + done, extent.first + done, extent.count - done));
      TRY_VOID(into.write(extent.first + done, content));
      done += static_cast<std::uint32_t>(content.size() / kPageBytes);
    }
  }
  return {};
}

}  // namespace space::snapshot
