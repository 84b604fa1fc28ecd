// Which checkpoints are the layers of builds, by key, and which of them goes when there are too many: the one used longest ago. Kept in
// one file, written durably; a checkpoint that it lost is found by its name at the next start (builds.cc). Blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::build {

inline constexpr const char* kLayerName = "build-layer-";  // of checkpoints; the key's first 16 digits follow
// By their names: people may call theirs "build-layer-2" or "build-cache".
bool is_layer(std::string_view checkpoint);
bool is_of_builds(std::string_view checkpoint);  // a layer, or taken for a moment by a build or a publishing

struct Layer {
  std::string key, tenant, checkpoint;
  std::int64_t depth = 1;  // layers from the parent up to it: a VM opens so many files for its disk and no more
  std::int64_t used_ms = 0;
};

class Layers {
 public:
  explicit Layers(std::filesystem::path file) : file_(std::move(file)) {}
  Result<> load();
  const Layer* find(const std::string& tenant, const std::string& key) const;  // valid until the next change
  void use(const std::string& tenant, const std::string& key, std::int64_t now_ms);
  void put(Layer layer);
  void drop(const std::string& tenant, const std::string& key);
  std::vector<Layer> surplus(std::size_t most) const;               // of each tenant: what goes
  const std::map<std::string, Layer>& all() const { return all_; }  // by tenant and key
  std::string text() const;                                         // what save writes
  static Result<> save(const std::filesystem::path& file, const std::string& text);
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::map<std::string, Layer> all_;
};

}  // namespace space::build
