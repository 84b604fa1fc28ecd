#include "node/vault.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <optional>
#include <tuple>

#include "base/file.h"
#include "base/log.h"
#include "snapshot/memory_image.h"
#include "snapshot/upkeep.h"

namespace space::node {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMostDevices = 16 << 20;  // bytes; some ten thousand as a rule

constexpr std::uint64_t kMostGatewayState = 8 << 20;  // bytes; names of hosts
constexpr std::size_t kMostSound = 100'000;           // layers of disks; some 15 MB

snapshot::Manifest draft_of(const Vault::Order& order) {
  const SandboxRecord& record = order.record;
  snapshot::Manifest manifest;
  manifest.id = order.id;
  manifest.tenant = record.tenant;
  manifest.kind = order.kind;
  manifest.sandbox = record.id;
  manifest.lineage = record.lineage.empty() ? record.id : record.lineage;
  manifest.parent = record.checkpoint;
  manifest.name = order.name;
  manifest.automatic = order.automatic;
  manifest.template_digest = record.template_digest;
  manifest.base_key = record.base_key;
  manifest.vmm_build = order.vmm_build;
  manifest.cpus = record.size.cpus;
  manifest.memory_mib = record.size.memory_mib;
  manifest.disk_mib = record.size.disk_mib;
  manifest.created_ms = order.now_ms;
  return manifest;
}

}  // namespace

Result<Vault::Draft> Vault::gather(const Order& order, const Capture& capture) {
  Draft draft;
  draft.manifest = draft_of(order);
  Kept& kept = draft.kept;
  TRY(kept.lease, store_->lease(order.record.tenant, snapshot::Durable::together));
  TRY(const std::string devices, read_fd(capture.devices, kMostDevices));
  // Side by side: freezing asks the warden, and each has bytes to hash.
  Kept disk;
  auto freezing = std::async(std::launch::async, [&] { return freeze(order, *kept.lease, disk); });
  auto putting = std::async(std::launch::async, [&] { return snapshot::put_bytes(*store_, *kept.lease, devices); });
  Fd nothing;
  if (!order.memory_base) {
    TRY(nothing, snapshot::new_guest_memory(std::uint64_t{order.record.size.memory_mib} << 20));
  }
  const Fd& base = order.memory_base ? *order.memory_base : nothing;
  TRY(snapshot::StoredMemory memory, snapshot::store_memory(*store_, *kept.lease, capture.pages, base, order.parent.get()));
  kept.memory = std::make_shared<const snapshot::MemoryState>(memory.state);
  draft.manifest.memory = std::move(memory.state);
  TRY(const snapshot::BlobRef device_state, putting.get());
  draft.manifest.device_state = device_state;
  TRY_VOID(freezing.get());
  kept.layers = std::move(disk.layers);
  kept.own_bytes = memory.stored_bytes + device_state.bytes + disk.own_bytes;
  return draft;
}

Result<Vault::Kept> Vault::keep_disk(const Order& order) {
  Draft draft;
  draft.manifest = draft_of(order);
  TRY(draft.kept.lease, store_->lease(order.record.tenant, snapshot::Durable::together));
  TRY_VOID(freeze(order, *draft.kept.lease, draft.kept));
  return publish(order, std::move(draft));
}

Result<Vault::Kept> Vault::keep_generations(const Order& order) {
  Kept kept;
  TRY(kept.lease, store_->lease(order.record.tenant));
  TRY_VOID(freeze(order, *kept.lease, kept));
  return kept;
}

Result<> Vault::freeze(const Order& order, snapshot::Lease& lease, Kept& kept) {
  kept.layers = order.record.layers;
  for (const snapshot::BlobRef& layer : kept.layers) TRY_VOID(lease.keep(layer));
  for (const fs::path& path : order.disks) {
    TRY(const Fd file, open_to_freeze(path));
    TRY(const snapshot::BlobRef layer, keep_generation(lease, file));
    kept.layers.push_back(layer);
    kept.own_bytes += layer.bytes;
  }
  return {};
}

Result<snapshot::BlobRef> Vault::keep_generation(snapshot::Lease& lease, const Fd& file) {
  TRY(snapshot::BlobRef layer, store_->put_file(lease, file, freeze_));
  remember_sound(lease.tenant(), layer);
  return layer;
}

Result<Vault::Kept> Vault::publish(const Order& order, Draft draft) {
  auto& [kept, manifest] = draft;
  if (!order.gateway_state.empty()) {
    TRY(manifest.gateway_state, snapshot::put_bytes(*store_, *kept.lease, order.gateway_state));
  }
  for (const snapshot::BlobRef& layer : kept.layers) manifest.disk.push_back({layer});
  manifest.own_bytes = kept.own_bytes;
  SandboxRecord settings = order.record;
  settings.layers = kept.layers;
  settings.create_spans.clear();
  settings.kept.clear();
  manifest.settings = encode_record(settings);
  TRY_VOID(snapshot::publish_manifest(*store_, *kept.lease, key_, manifest));
  grown_ = true;
  return std::move(kept);
}

// One that an attempt before froze is no part of any checkpoint yet, so it may be thawed to be frozen again.
Result<Fd> Vault::open_to_freeze(const fs::path& path) {
  auto file = open_file(path, O_RDWR);
  if (file || errno != EPERM) return file;
  TRY(const Fd frozen, open_file(path, O_RDONLY));
  TRY_VOID(freeze_(frozen, false));
  return open_file(path, O_RDWR);
}

Result<Checkpoint> Vault::open(const std::string& tenant, const std::string& id) {
  TRY(snapshot::Manifest manifest, snapshot::read_manifest(*store_, key_, tenant, id));
  TRY(SandboxRecord record, decode_record(manifest.settings));
  return Checkpoint{std::move(manifest), std::move(record)};
}

Result<std::shared_ptr<const Checkpoint>> Vault::outline(const std::string& tenant, const std::string& id) {
  TRY(snapshot::Manifest manifest, snapshot::read_manifest_outline(*store_, key_, tenant, id));
  TRY(SandboxRecord record, decode_record(manifest.settings));
  manifest.settings.clear();
  if (manifest.memory) manifest.memory->map = snapshot::PageMap(manifest.memory->map.pages());
  return std::make_shared<const Checkpoint>(Checkpoint{std::move(manifest), std::move(record)});
}

// A manifest never changes under its id, so what was read of one stays right until it is withdrawn.
Result<std::vector<std::shared_ptr<const Checkpoint>>> Vault::list(const std::string& tenant) {
  TRY(const auto ids, store_->manifests(tenant));
  std::map<std::string, std::shared_ptr<const Checkpoint>> known, found;
  {
    const std::scoped_lock hold(mutex_);
    known = outlines_[tenant];
  }
  std::vector<std::shared_ptr<const Checkpoint>> all;
  for (const std::string& id : ids) {
    const auto before = known.find(id);
    auto one = before != known.end() ? Result<std::shared_ptr<const Checkpoint>>(before->second) : outline(tenant, id);
    if (!one) {
      if (one.error().code != "checkpoint_unknown") log::error("checkpoint.unreadable", {{"checkpoint", id}, {"error", one.error()}});
      continue;
    }
    found.emplace(id, *one);
    all.push_back(std::move(*one));
  }
  {
    const std::scoped_lock hold(mutex_);
    outlines_[tenant] = std::move(found);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a->manifest.created_ms, a->manifest.id) < std::tie(b->manifest.created_ms, b->manifest.id);
  });
  return all;
}

Result<std::vector<std::shared_ptr<const Checkpoint>>> Vault::everything() {
  TRY(const auto tenants, store_->tenants());
  std::vector<std::shared_ptr<const Checkpoint>> all;
  for (const std::string& tenant : tenants) {
    TRY(const auto ids, store_->manifests(tenant));
    for (const std::string& id : ids) {
      auto found = outline(tenant, id);
      if (found)
        all.push_back(std::move(*found));
      else if (found.error().code != "checkpoint_unknown")
        return fail(std::move(found).error());  // that one has gone meanwhile
    }
  }
  return all;
}

Result<> Vault::forget(const std::string& tenant, const std::string& id) {
  garbage_ = true;
  ++forgotten_;
  return store_->withdraw(tenant, id);
}

void Vault::collect() {
  const auto tenants = store_->tenants();
  if (!tenants) log::error("store.unreadable", {{"error", tenants.error()}});
  for (const std::string& tenant : tenants ? *tenants : std::vector<std::string>{}) {
    const auto found = snapshot::collect_garbage(*store_, key_, tenant);
    if (!found)
      log::error("store.not_collected", {{"tenant", tenant}, {"error", found.error()}});
    else if (found->removed_bytes > 0)
      log::info("store.collected", {{"tenant", tenant}, {"bytes", static_cast<std::int64_t>(found->removed_bytes)}});
  }
}

Result<std::vector<Fd>> Vault::layers(const std::string& tenant, const std::vector<snapshot::BlobRef>& layers) {
  std::vector<Fd> files;
  for (const snapshot::BlobRef& layer : layers) {
    TRY(Fd file, files_.open(tenant, layer));
    files.push_back(std::move(file));
  }
  return files;
}

Result<> Vault::check_layers(const std::string& tenant, const std::vector<snapshot::BlobRef>& layers) {
  const std::scoped_lock one_at_a_time(checking_);
  for (const snapshot::BlobRef& layer : layers) {
    {
      const std::scoped_lock hold(mutex_);
      if (sound_.contains({tenant, layer.digest})) continue;
    }
    TRY_VOID(snapshot::verify_blob(*store_, tenant, layer));
    remember_sound(tenant, layer);
  }
  return {};
}

void Vault::remember_sound(const std::string& tenant, const snapshot::BlobRef& layer) {
  const std::scoped_lock hold(mutex_);
  if (sound_.size() >= kMostSound) sound_.clear();  // they are read once more, that is all
  sound_.emplace(tenant, layer.digest);
}

Result<SavedState> Vault::saved(const std::string& tenant, const snapshot::Manifest& manifest) {
  if (!manifest.memory || !manifest.device_state)
    return fail(ErrorKind::conflict, "checkpoint_without_memory", "this checkpoint is of a disk alone", "start a sandbox from it");
  TRY(const std::string devices, snapshot::read_blob(*store_, tenant, *manifest.device_state, kMostDevices));
  SavedState state;
  state.devices = Fd(::memfd_create("devices", MFD_CLOEXEC));
  if (!state.devices) return fail_errno(errno, "make a memory file");
  TRY_VOID(write_all(state.devices, devices));
  auto memory = std::make_shared<const snapshot::MemoryState>(*manifest.memory);
  state.write_pages = [this, tenant, memory](const snapshot::GuestMemory& into) {
    return snapshot::load_memory(*store_, tenant, *memory, into);
  };
  return state;
}

Result<std::string> Vault::gateway_state(const std::string& tenant, const snapshot::Manifest& manifest) {
  if (!manifest.gateway_state) return std::string();
  return snapshot::read_blob(*store_, tenant, *manifest.gateway_state, kMostGatewayState);
}

Result<std::unique_ptr<snapshot::Lease>> Vault::hold(const std::string& tenant, const std::vector<snapshot::BlobRef>& layers,
                                                     const snapshot::MemoryState* memory) {
  TRY(auto lease, store_->lease(tenant));
  for (const snapshot::BlobRef& layer : layers) TRY_VOID(lease->keep(layer));
  if (memory)
    for (const snapshot::LayerRef& layer : memory->layers) TRY_VOID(lease->keep(layer.blob));
  return lease;
}

Result<> Vault::tidy(const fs::path& folder, const std::vector<std::string>& keep) {
  auto names = list_directory(folder);
  if (!names) {
    if (names.error().kind == ErrorKind::not_found) return {};
    return fail(std::move(names).error());
  }
  for (const std::string& name : *names) {
    if (!is_disk_name(name) || std::find(keep.begin(), keep.end(), name) != keep.end()) continue;
    const fs::path path = folder / name;
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) continue;
    if (errno != EPERM) return fail_errno(errno, "remove a generation of a disk");
    // Frozen. Nothing has it open for writing any more, so it may be thawed for the moment in which this name goes.
    TRY(const Fd frozen, open_file(path, O_RDONLY));
    TRY_VOID(freeze_(frozen, false));
    TRY(const Fd writable, open_file(path, O_RDWR));
    if (::unlink(path.c_str()) != 0) return fail_errno(errno, "remove a generation of a disk");
    TRY_VOID(freeze_(writable, true));
  }
  return {};
}

Result<> Vault::tidy_thawed(const fs::path& folder, const std::vector<std::string>& keep) {
  TRY(const auto names, list_directory(folder));
  for (const std::string& name : names) {
    if (!is_disk_name(name) || std::find(keep.begin(), keep.end(), name) != keep.end()) continue;
    if (::unlink((folder / name).c_str()) != 0 && errno != ENOENT && errno != EPERM)
      return fail_errno(errno, "remove a generation of a disk");
  }
  return {};
}

}  // namespace space::node
