// Egress settings as they are written on a command line: a mode, a file, presets, and what this machine's package managers use.
// Blocks on files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace space::cli {

struct Preset {
  std::string name, description;
  json::object policy;
};

// presets/ beside the program: of an installation or of the source tree. not_found names the places tried.
Result<std::filesystem::path> find_presets();
Result<std::vector<Preset>> list_presets(const std::filesystem::path& folder);
Result<Preset> read_preset(const std::filesystem::path& folder, std::string_view name);  // not_found/preset_not_found

// The body of PUT /v1/sandboxes/{id}/egress. Each word is `none`, `open`, the name of a preset, or a file: a policy
// ({"mode",…}), or the whole settings ({"policy","limits"?,"credentials"?}). Several are merged into one allowlist: rules of the
// same id that differ get another id, limits and credentials come from the files.
Result<json::object> egress_settings(const std::vector<std::string>& words);

}  // namespace space::cli
