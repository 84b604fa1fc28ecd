#include "build/layers.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"

namespace space::build {
namespace {

constexpr std::size_t kLayersBytes = 4 << 20, kMostKept = 10'000;

std::string place(const std::string& tenant, const std::string& key) { return tenant + "/" + key; }

}  // namespace

bool is_layer(std::string_view checkpoint) {
  constexpr std::size_t kDigits = 16;
  if (!checkpoint.starts_with(kLayerName)) return false;
  checkpoint.remove_prefix(std::string_view(kLayerName).size());
  return checkpoint.size() == kDigits && checkpoint.find_first_not_of("0123456789abcdef") == checkpoint.npos;
}

bool is_of_builds(std::string_view checkpoint) {
  if (is_layer(checkpoint)) return true;
  for (const std::string_view prefix : {"build-", "publish-"})
    if (checkpoint.starts_with(prefix) && is_id(checkpoint.substr(prefix.size()))) return true;
  return false;
}

Result<> Layers::load() {
  all_.clear();
  auto text = read_file(file_, kLayersBytes);
  if (!text) return text.error().kind == ErrorKind::not_found ? Result<>{} : fail(std::move(text).error());
  auto object = parse_json_object(*text, kLayersBytes);
  // What cannot be read is not used; the checkpoints are found by their names and removed.
  if (!object) return log::warn("build.layers_unreadable", {{"error", object.error()}}), Result<>{};
  JsonReader top(*object);
  const json::array* items = top.array("layers", kMostKept);
  if (!items || !top.done()) return {};
  for (const json::value& item : *items) {
    if (!item.is_object()) continue;
    JsonReader r(item.get_object());
    Layer layer{r.text("key", 64, 64), r.text("tenant", 1, 64), r.text("checkpoint", 20, 40), r.number("depth", 1, 64),
                r.number("used_ms", 0, INT64_MAX)};
    if (r.done()) put(std::move(layer));
  }
  return {};
}

const Layer* Layers::find(const std::string& tenant, const std::string& key) const {
  const auto found = all_.find(place(tenant, key));
  return found == all_.end() ? nullptr : &found->second;
}

void Layers::use(const std::string& tenant, const std::string& key, std::int64_t now_ms) {
  const auto found = all_.find(place(tenant, key));
  if (found != all_.end()) found->second.used_ms = now_ms;
}

void Layers::put(Layer layer) { all_[place(layer.tenant, layer.key)] = std::move(layer); }
void Layers::drop(const std::string& tenant, const std::string& key) { all_.erase(place(tenant, key)); }

std::vector<Layer> Layers::surplus(std::size_t most) const {
  std::map<std::string, std::vector<Layer>> by_tenant;
  for (const auto& [name, layer] : all_) by_tenant[layer.tenant].push_back(layer);
  std::vector<Layer> out;
  for (auto& [tenant, layers] : by_tenant) {
    std::sort(layers.begin(), layers.end(), [](const Layer& a, const Layer& b) { return a.used_ms > b.used_ms; });
    for (std::size_t i = most; i < layers.size(); ++i) out.push_back(layers[i]);
  }
  return out;
}

std::string Layers::text() const {
  json::array items;
  for (const auto& [name, l] : all_)
    items.push_back(
        json::object{{"key", l.key}, {"tenant", l.tenant}, {"checkpoint", l.checkpoint}, {"depth", l.depth}, {"used_ms", l.used_ms}});
  const json::object out{{"layers", std::move(items)}};
  return json::serialize(out) + "\n";
}

Result<> Layers::save(const std::filesystem::path& file, const std::string& text) {
  TRY_VOID(make_directories(file.parent_path()));
  return write_file_durable(file, text);
}

}  // namespace space::build
