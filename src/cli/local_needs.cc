#include "cli/local_needs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/json.h"
#include "snapshot/local_blob_store.h"

namespace space::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kMostRecord = 4 << 20;

Result<> add_sandboxes(const fs::path& folder, std::vector<tmpl::Need>& needs) {
  const auto ids = list_directory(folder);
  if (!ids && ids.error().kind == ErrorKind::not_found) return {};
  if (!ids) return fail(ids.error());
  for (const std::string& id : *ids) {
    const auto text = read_file(folder / id / "record.json", kMostRecord);
    if (!text && text.error().kind == ErrorKind::not_found) continue;
    if (!text) return fail(text.error());
    TRY(const json::object object, parse_json_object(*text, kMostRecord));
    JsonReader reader(object);
    reader.ignore_unknown();
    tmpl::Need need{"sandbox", id, reader.text("state", 0, 32, ""), reader.text("template_digest", 0, 128, ""),
                    reader.text("base_key", 0, 128, "")};
    TRY_VOID(reader.done());
    needs.push_back(std::move(need));
  }
  return {};
}

}  // namespace

Result<std::vector<tmpl::Need>> local_needs(const fs::path& node, snapshot::BlobStore& store, const snapshot::ManifestKey& key) {
  std::vector<tmpl::Need> needs;
  TRY(const auto tenants, store.tenants());
  for (const std::string& tenant : tenants) {
    TRY(const auto ids, store.manifests(tenant));
    for (const std::string& id : ids) {
      const auto manifest = snapshot::read_manifest(store, key, tenant, id);
      if (!manifest && manifest.error().code == "checkpoint_unknown") continue;  // it has gone meanwhile
      if (!manifest) return fail(manifest.error());
      if (manifest->kind == snapshot::CheckpointKind::suspend) continue;  // its sandbox says so itself
      needs.push_back({"checkpoint", manifest->id, manifest->name, manifest->template_digest, manifest->base_key});
    }
  }
  TRY_VOID(add_sandboxes(node / "sandboxes", needs));
  return needs;
}

Result<std::vector<tmpl::Need>> local_needs(const fs::path& node) {
  if (::access((node / "store").c_str(), F_OK) != 0 && errno == ENOENT) return std::vector<tmpl::Need>{};
  TRY(const auto store, snapshot::LocalBlobStore::open(node / "store", {}, snapshot::LocalBlobStore::Use::reader));
  TRY(const auto key, snapshot::ManifestKey::open(node / "manifest.key"));
  return local_needs(node, *store, key);
}

}  // namespace space::cli
