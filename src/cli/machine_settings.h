// Which package servers this machine's tools use, out of their own settings, as an egress policy that only reads from them. So that
// a sandbox can install what the machine can, without a server's name in SPACE. Parsers are separate from where the texts come from.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace space::cli {

struct PackageSource {
  std::string tool;  // "apt", "pip", "npm", "cargo", "go"
  std::string url;   // as found; a user and password inside are never shown
};

// URLs in sources.list(5), both forms.
std::vector<std::string> apt_urls(std::string_view text);
// Values of index-url, extra-index-url, registry and the like in INI, TOML or NAME=value lines.
std::vector<std::string> urls_of_settings(std::string_view text, const std::vector<std::string_view>& names);

// Reads the settings below `root` ("/" on a machine), for the home `home`, and asks the tools themselves where `ask_tools`.
std::vector<PackageSource> machine_sources(const std::filesystem::path& root, const std::filesystem::path& home, bool ask_tools);
// {"mode":"allowlist","rules":[…]}: GET and HEAD on their hosts and ports, one rule a host.
json::object sources_policy(const std::vector<PackageSource>& sources);

}  // namespace space::cli
