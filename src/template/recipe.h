// A template's definition: the folder that templates/rootfs reads, and what template.toml in it says about the sandbox.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "template/publish.h"

namespace space::tmpl {

// Strict: unknown keys and wrong types are template_recipe errors that name the file.
Result<RuntimeConfig> read_recipe(const std::filesystem::path& folder);

}  // namespace space::tmpl
