#include "snapshot/manifest.h"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <set>

#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/secret.h"

namespace space::snapshot {
namespace {

constexpr std::string_view kWord = "space-manifest";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kBodyLimit = 4 << 20;
constexpr std::size_t kInlineMap = 32 << 10;
constexpr std::size_t kSettingsLimit = 1 << 20;  // what node takes for a record: 128 KiB of environment may be six times as long in JSON
constexpr std::size_t kMostGenerations = 64;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;
constexpr std::uint64_t kMapLimit = 24 + kMostPages * 16;
constexpr std::size_t kHeadLimit = 160;

tl::unexpected<Error> refused(std::string_view code, std::string_view what) {
  return fail(ErrorKind::corrupt, code, fmt::format("a checkpoint's manifest is refused: {}", what),
              "restore the checkpoint from a backup");
}

constexpr std::string_view kKinds[] = {"checkpoint", "suspend", "file_snapshot"};

json::object blob_json(const BlobRef& blob) { return {{"digest", blob.digest}, {"bytes", blob.bytes}}; }

BlobRef blob_from(const json::object& object, const std::string& path, JsonReader& owner, std::string_view name) {
  JsonReader reader(object, path);
  BlobRef blob{reader.text("digest", 71, 71), static_cast<std::uint64_t>(reader.number("bytes", 0, kMostBytes))};
  if (auto done = reader.done(); !done || !is_digest(blob.digest)) owner.reject(name, "must be a digest and a length");
  return blob;
}

std::optional<BlobRef> optional_blob(JsonReader& reader, std::string_view name) {
  const json::object* object = reader.object(name);
  if (!object) return std::nullopt;
  return blob_from(*object, std::string(name), reader, name);
}

json::object memory_json(const Manifest& manifest) {
  json::array layers;
  for (const LayerRef& layer : manifest.memory->layers) {
    json::object object = blob_json(layer.blob);
    object["pages"] = layer.pages;
    layers.push_back(std::move(object));
  }
  json::object memory{{"layers", std::move(layers)}};
  if (manifest.map_blob) {
    memory["map_blob"] = blob_json(*manifest.map_blob);
  } else {
    memory["map"] = base64_encode(as_bytes(manifest.memory->map.encode()));
  }
  return memory;
}

Result<> read_memory(const json::object& object, Manifest& manifest) {
  JsonReader reader(object, "memory");
  MemoryState state(std::uint64_t{manifest.memory_mib} << 20);
  if (const json::array* layers = reader.array("layers", kMostLayers)) {
    for (const json::value& value : *layers) {
      if (!value.is_object()) return refused("manifest_damaged", "a layer");
      JsonReader layer(value.get_object(), "memory.layers");
      LayerRef ref{{layer.text("digest", 71, 71), static_cast<std::uint64_t>(layer.number("bytes", 1, kMostBytes))},
                   static_cast<std::uint32_t>(layer.number("pages", 1, static_cast<std::int64_t>(kMostPages)))};
      if (!layer.done() || !is_digest(ref.blob.digest)) return refused("manifest_damaged", "a layer");
      state.layers.push_back(std::move(ref));
    }
  }
  manifest.map_blob = optional_blob(reader, "map_blob");
  const std::string map = reader.text("map", 0, kBodyLimit, "");
  if (auto done = reader.done(); !done) return refused("manifest_damaged", done.error().message);
  if (manifest.map_blob.has_value() != map.empty()) return refused("manifest_damaged", "a page map in one place is due");
  if (!map.empty()) {
    const auto bytes = base64_decode(map);
    if (!bytes) return refused("manifest_damaged", "its page map");
    TRY(state.map, PageMap::decode(*bytes, state.map.pages(), static_cast<std::uint32_t>(state.layers.size())));
  }
  manifest.memory = std::move(state);
  return {};
}

// What read_manifest would refuse must not be published.
Result<> check(const Manifest& m) {
  const auto wrong = [](std::string_view what) { return refused("manifest_damaged", what); };
  if (!is_id(m.id) || !is_tenant(m.tenant) || !is_id(m.sandbox)) return wrong("an id");
  if (!m.parent.empty() && !is_id(m.parent)) return wrong("its parent");
  if ((m.kind == CheckpointKind::file_snapshot) == m.memory.has_value()) return wrong("memory and kind do not fit");
  if (m.memory.has_value() != m.device_state.has_value()) return wrong("memory without device state, or the other way round");
  return {};
}

}  // namespace

Result<ManifestKey> ManifestKey::open(const std::filesystem::path& file) {
  auto text = read_file(file, 64);
  if (!text && text.error().kind == ErrorKind::not_found) {
    Sha256 key;
    random_bytes(key);
    const auto written = write_file_durable(file, as_text(key), 0600);
    ManifestKey made = of(key);
    wipe(key);
    TRY_VOID(written);
    return made;
  }
  if (!text) return fail(text.error());
  const WipeAtEnd wiped(*text);
  Sha256 key;
  if (text->size() != key.size())
    return fail(ErrorKind::corrupt, "manifest_key_damaged", fmt::format("{} is not a key of {} bytes", file.string(), key.size()),
                "restore it from a backup: without it no checkpoint can be used");
  std::copy_n(as_bytes(*text).begin(), key.size(), key.begin());
  ManifestKey out = of(key);
  wipe(key);
  return out;
}

ManifestKey ManifestKey::of(const Sha256& key) {
  ManifestKey out;
  out.key_ = key;
  out.id_ = hex_encode(hmac_sha256(key, as_bytes("space manifest key id"))).substr(0, 16);
  return out;
}

std::string ManifestKey::sign(std::string_view body) const { return hex_encode(hmac_sha256(key_, as_bytes(body))); }

std::string seal_manifest(const ManifestKey& key, std::string_view body) {
  const std::string head = fmt::format("{} {} {} {}", kWord, kFormat, key.id(), body.size());
  return fmt::format("{} {}\n{}", head, key.sign(fmt::format("{}\n{}", head, body)), body);
}

Result<std::string_view> open_manifest(const ManifestKey& key, std::string_view text) {
  const std::size_t line = text.substr(0, kHeadLimit).find('\n');
  if (!text.starts_with(kWord)) return refused("manifest_damaged", "it does not begin as one");
  if (line == std::string_view::npos)
    return text.size() < kHeadLimit ? refused("manifest_truncated", "it ends in its first line")
                                    : refused("manifest_damaged", "its first line");
  std::vector<std::string_view> fields;
  for (std::string_view rest = text.substr(0, line);;) {
    const std::size_t space = rest.find(' ');
    fields.push_back(rest.substr(0, space));
    if (space == std::string_view::npos) break;
    rest.remove_prefix(space + 1);
  }
  if (fields.size() < 2 || fields[0] != kWord) return refused("manifest_damaged", "its first line");
  if (fields[1] != std::to_string(kFormat))
    return refused("manifest_unknown_version", fmt::format("this build reads format {}, this one is of another", kFormat));
  std::uint64_t length = 0;
  if (fields.size() != 5) return refused("manifest_damaged", "its first line");
  const auto [stop, error] = std::from_chars(fields[3].data(), fields[3].data() + fields[3].size(), length);
  if (error != std::errc{} || stop != fields[3].data() + fields[3].size() || length > kBodyLimit)
    return refused("manifest_damaged", "its length");
  const std::string_view body = text.substr(line + 1);
  if (body.size() < length) return refused("manifest_truncated", fmt::format("{} of {} bytes are there", body.size(), length));
  if (fields[2] != key.id()) return refused("manifest_other_key", "it was signed with another key: it is not of this node");
  const std::string head(text.substr(0, line - fields[4].size() - 1));
  if (body.size() != length || !equal_constant_time(key.sign(fmt::format("{}\n{}", head, body)), fields[4]))
    return refused("manifest_wrong_hmac", "its HMAC is wrong: it was altered");
  return body;
}

std::string write_manifest_body(const Manifest& m) {
  json::object body{{"id", m.id},
                    {"tenant", m.tenant},
                    {"kind", kKinds[static_cast<std::size_t>(m.kind)]},
                    {"sandbox", m.sandbox},
                    {"lineage", m.lineage},
                    {"parent", m.parent},
                    {"name", m.name},
                    {"template_digest", m.template_digest},
                    {"base_key", m.base_key},
                    {"vmm_build", m.vmm_build},
                    {"cpus", m.cpus},
                    {"memory_mib", m.memory_mib},
                    {"disk_mib", m.disk_mib},
                    {"created_ms", m.created_ms},
                    {"own_bytes", m.own_bytes},
                    {"settings", m.settings}};
  if (m.automatic) body["automatic"] = true;
  if (m.memory) body["memory"] = memory_json(m);
  if (m.device_state) body["device_state"] = blob_json(*m.device_state);
  if (m.gateway_state) body["gateway_state"] = blob_json(*m.gateway_state);
  json::array disk;
  for (const DiskGeneration& generation : m.disk) disk.push_back(blob_json(generation.blob));
  body["disk"] = std::move(disk);
  return json::serialize(body);
}

Result<Manifest> parse_manifest_body(std::string_view text) {
  auto body = parse_json_object(text, kBodyLimit);
  if (!body) return refused("manifest_damaged", body.error().message);
  JsonReader reader(*body);
  Manifest m;
  m.id = reader.text("id", 20, 40);
  m.tenant = reader.text("tenant", 1, 64);
  const std::string kind = reader.text("kind", 1, 20);
  m.sandbox = reader.text("sandbox", 20, 40);
  m.lineage = reader.text("lineage", 0, 64);
  m.parent = reader.text("parent", 0, 40);
  m.name = reader.text("name", 0, 256);
  m.automatic = reader.boolean("automatic", false);
  m.template_digest = reader.text("template_digest", 0, 80);
  m.base_key = reader.text("base_key", 0, 80);
  m.vmm_build = reader.text("vmm_build", 0, 80);
  m.cpus = static_cast<std::uint32_t>(reader.number("cpus", 1, 256));
  m.memory_mib = static_cast<std::uint32_t>(reader.number("memory_mib", 1, static_cast<std::int64_t>(kMostPages * kPageBytes >> 20)));
  m.disk_mib = static_cast<std::uint32_t>(reader.number("disk_mib", 1, std::int64_t{1} << 24));
  m.created_ms = reader.number("created_ms", 0, std::int64_t{1} << 48);
  m.own_bytes = static_cast<std::uint64_t>(reader.number("own_bytes", 0, kMostBytes));
  m.settings = reader.text("settings", 0, kSettingsLimit);
  const json::object* memory = reader.object("memory");
  m.device_state = optional_blob(reader, "device_state");
  m.gateway_state = optional_blob(reader, "gateway_state");
  if (const json::array* disk = reader.array("disk", kMostGenerations)) {
    for (const json::value& value : *disk) {
      if (!value.is_object()) {
        reader.reject("disk", "must be a list of blobs");
        break;
      }
      m.disk.push_back({blob_from(value.get_object(), "disk", reader, "disk")});
    }
  }
  const auto* known = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (known == std::end(kKinds)) reader.reject("kind", "is unknown");
  if (auto done = reader.done(); !done) return refused("manifest_damaged", done.error().message);
  m.kind = static_cast<CheckpointKind>(known - std::begin(kKinds));
  if (memory) TRY_VOID(read_memory(*memory, m));
  TRY_VOID(check(m));
  return m;
}

std::vector<BlobRef> blobs_of(const Manifest& m) {
  std::vector<BlobRef> all;
  if (m.memory)
    for (const LayerRef& layer : m.memory->layers) all.push_back(layer.blob);
  for (const auto& one : {m.map_blob, m.device_state, m.gateway_state})
    if (one) all.push_back(*one);
  for (const DiskGeneration& generation : m.disk) all.push_back(generation.blob);
  std::set<std::string> seen;
  std::erase_if(all, [&](const BlobRef& blob) { return !seen.insert(blob.digest).second; });
  return all;
}

Result<> publish_manifest(BlobStore& store, Lease& lease, const ManifestKey& key, Manifest& manifest) {
  manifest.map_blob.reset();
  if (manifest.memory) {
    const std::string map = manifest.memory->map.encode();
    if (map.size() > kInlineMap) {
      TRY(manifest.map_blob, put_bytes(store, lease, map));
    }
  }
  const std::string body = write_manifest_body(manifest);
  const auto again =
      manifest.tenant == lease.tenant() ? parse_manifest_body(body) : refused("manifest_damaged", "the lease is of another tenant");
  if (!again) return fail(ErrorKind::invalid_argument, "manifest_invalid", again.error().message);
  for (const BlobRef& blob : blobs_of(manifest)) TRY_VOID(lease.keep(blob));
  return store.publish(lease, manifest.id, seal_manifest(key, body));
}

Result<Manifest> read_manifest_outline(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::string& id) {
  TRY(const std::string text, store.manifest(tenant, id));
  TRY(const std::string_view body, open_manifest(key, text));
  TRY(Manifest manifest, parse_manifest_body(body));
  if (manifest.tenant != tenant) return refused("manifest_other_tenant", "it belongs to another tenant");
  if (manifest.id != id) return refused("manifest_damaged", "it is of another checkpoint");
  return manifest;
}

Result<Manifest> read_manifest(BlobStore& store, const ManifestKey& key, const std::string& tenant, const std::string& id) {
  TRY(Manifest manifest, read_manifest_outline(store, key, tenant, id));
  if (manifest.map_blob) {
    TRY(const std::string map, read_blob(store, tenant, *manifest.map_blob, kMapLimit));
    TRY(manifest.memory->map,
        PageMap::decode(map, manifest.memory->map.pages(), static_cast<std::uint32_t>(manifest.memory->layers.size())));
  }
  return manifest;
}

}  // namespace space::snapshot
