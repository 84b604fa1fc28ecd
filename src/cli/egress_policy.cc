#include "cli/egress_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.h"

namespace space::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kFileLimit = 4 << 20;

bool is_preset_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

bool is_file_word(const std::string& word) {
  std::error_code error;
  return word.find('/') != std::string::npos || word.ends_with(".json") || (!is_preset_name(word) && fs::exists(word, error));
}

Result<json::object> read_settings(const std::string& path) {
  TRY(const std::string text, read_file(path, kFileLimit));
  auto parsed = parse_json_object(text, kFileLimit);
  if (!parsed)
    return fail(ErrorKind::invalid_argument, "invalid_policy", fmt::format("{}: {}", path, parsed.error().message),
                "see docs/network.md for what a policy holds");
  if (parsed->contains("mode")) return json::object{{"policy", std::move(*parsed)}};
  parsed->erase("description");
  return std::move(*parsed);
}

// Adds the rules of `from` to `into`; the mode of the sum is allowlist.
void merge_rules(json::object& into, const json::object& from, std::set<std::string>& ids) {
  json::array& rules = into["rules"].is_array() ? into["rules"].get_array() : into["rules"].emplace_array();
  const json::value* more = from.if_contains("rules");
  if (!more || !more->is_array()) return;
  for (const json::value& item : more->get_array()) {
    if (std::find(rules.begin(), rules.end(), item) != rules.end()) continue;
    json::value rule = item;
    if (rule.is_object()) {
      const json::value* given = rule.get_object().if_contains("id");
      const std::string wanted = given && given->is_string() ? std::string(given->get_string()) : fmt::format("rule-{}", rules.size() + 1);
      std::string id = wanted;
      for (int n = 2; !ids.insert(id).second; ++n) id = fmt::format("{}-{}", wanted, n);
      rule.get_object()["id"] = id;
    }
    rules.push_back(std::move(rule));
  }
}

}  // namespace

Result<fs::path> find_presets() {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  std::string tried;
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    for (const char* place : {"share/space/presets", "presets"}) {
      const fs::path path = folder / place;
      if (fs::is_directory(path, error) && fs::exists(path / "README.md", error)) return path;
      tried += " " + path.string();
    }
  return fail(ErrorKind::not_found, "presets_missing", "presets/ is not there; tried" + tried,
              "install SPACE again, or run it from its source tree");
}

Result<Preset> read_preset(const fs::path& folder, std::string_view name) {
  const auto unknown = [&] {
    return fail(ErrorKind::not_found, "preset_not_found", fmt::format("there is no preset {}", name), "list them: space egress preset ls");
  };
  if (!is_preset_name(name)) return unknown();
  const auto text = read_file(folder / (std::string(name) + ".json"), kFileLimit);
  if (!text) return unknown();
  TRY(const json::object object, parse_json_object(*text, kFileLimit));
  JsonReader reader(object);
  Preset preset;
  preset.name = name;
  preset.description = reader.text("description", 1, 500);
  const json::object* policy = reader.object("policy");
  TRY_VOID(reader.done());
  if (policy) preset.policy = *policy;
  return preset;
}

Result<std::vector<Preset>> list_presets(const fs::path& folder) {
  TRY(const auto names, list_directory(folder));
  std::vector<Preset> out;
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    TRY(Preset preset, read_preset(folder, name.substr(0, name.size() - 5)));
    out.push_back(std::move(preset));
  }
  return out;
}

Result<json::object> egress_settings(const std::vector<std::string>& words) {
  std::vector<json::object> parts;
  for (const std::string& word : words) {
    if (word == "none" || word == "open") {
      parts.push_back({{"policy", json::object{{"mode", word}}}});
    } else if (is_file_word(word)) {
      TRY(json::object settings, read_settings(word));
      parts.push_back(std::move(settings));
    } else {
      TRY(const fs::path folder, find_presets());
      TRY(Preset preset, read_preset(folder, word));
      parts.push_back({{"policy", std::move(preset.policy)}});
    }
  }
  if (parts.empty())
    return fail(ErrorKind::invalid_argument, "no_policy", "no policy was given", "write none, open, a preset's name or a file");
  if (parts.size() == 1) return std::move(parts.front());
  json::object policy{{"mode", "allowlist"}, {"rules", json::array()}};
  json::object out;
  json::array credentials;
  std::set<std::string> ids;
  for (const json::object& part : parts) {
    const json::value* one = part.if_contains("policy");
    if (one && one->is_object()) {
      const json::value* mode = one->get_object().if_contains("mode");
      if (mode && *mode != "allowlist")
        return fail(ErrorKind::invalid_argument, "no_policy", "none and open cannot be merged with anything",
                    "give either one of them, or allowlists");
      merge_rules(policy, one->get_object(), ids);
    }
    if (const json::value* limits = part.if_contains("limits")) out["limits"] = *limits;
    if (const json::value* more = part.if_contains("credentials"); more && more->is_array())
      for (const json::value& binding : more->get_array()) credentials.push_back(binding);
  }
  out["policy"] = std::move(policy);
  if (!credentials.empty()) out["credentials"] = std::move(credentials);
  return out;
}

}  // namespace space::cli
