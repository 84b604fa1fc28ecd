#include "template/base_upkeep.h"

#include <cerrno>
#include <cstdio>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "template/base_files.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCurrentFile = "current.json";
constexpr std::size_t kMostCurrent = 4 << 20;
constexpr std::size_t kMostKeys = 50'000;

bool is_key(std::string_view name) { return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == name.npos; }

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const char* name : {kMemoryFile, kStateFile, kOverlayFile, kEmptyFile, kManifestFile}) {
    struct stat st {};
    if (::stat((folder / name).c_str(), &st) == 0) bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace

Result<std::vector<StoredBase>> stored_bases(const fs::path& root) {
  std::vector<StoredBase> found;
  auto names = list_directory(root);
  if (!names && names.error().kind == ErrorKind::not_found) return found;
  if (!names) return fail(std::move(names).error());
  for (const std::string& name : *names) {
    if (!is_key(name)) continue;
    const auto text = read_file(root / name / kManifestFile, 64 << 10);
    const auto manifest = text ? read_manifest(*text) : Result<BaseManifest>(tl::unexpected(text.error()));
    if (!manifest || manifest->key != name) continue;  // damaged: whoever asks for it next sees to it
    found.push_back({name, manifest->release_digest, manifest->release_name, manifest->size, manifest->created_ms, bytes_in(root / name)});
  }
  return found;
}

Result<> write_current(const fs::path& root, const CurrentBases& current) {
  json::array keys;
  for (const std::string& key : current.keys) keys.emplace_back(key);
  const json::object object{{"version", 1}, {"as_of_ms", current.as_of_ms}, {"keys", std::move(keys)}};
  return write_file_durable(root / kCurrentFile, json::serialize(object) + "\n", 0600);
}

Result<CurrentBases> read_current(const fs::path& root) {
  TRY(const std::string text, read_file(root / kCurrentFile, kMostCurrent));
  TRY(const json::object object, parse_json_object(text, kMostCurrent));
  JsonReader reader(object);
  reader.number("version", 1, 1);
  CurrentBases current;
  current.as_of_ms = reader.number("as_of_ms", 0, INT64_MAX);
  for (std::string& key : reader.texts("keys", kMostKeys, 64)) current.keys.insert(std::move(key));
  TRY_VOID(reader.done());
  return current;
}

bool is_unneeded(const StoredBase& base, const CurrentBases& current, const std::set<std::string>& needed) {
  // One that was made after the look is a create's own.
  return base.created_ms < current.as_of_ms && !current.keys.contains(base.key) && !needed.contains(base.key);
}

Result<> remove_base(const fs::path& root, const std::string& key) {
  if (!is_key(key)) return fail(ErrorKind::invalid_argument, "invalid_key", "this is no base's key");
  const fs::path gone = root / (std::string(kGone) + key);
  TRY_VOID(remove_tree(gone));
  if (::rename((root / key).c_str(), gone.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno(errno, "remove a base");
  }
  TRY_VOID(sync_directory(root));
  return remove_tree(gone);
}

}  // namespace space::tmpl
