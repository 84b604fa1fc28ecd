#include "template/recipe.h"

#include <fmt/format.h>

#include "base/file.h"
#include "template/build.h"
#include "template/toml_file.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

tl::unexpected<Error> bad(const fs::path& file, std::string_view what) {
  return fail(ErrorKind::invalid_argument, "template_recipe", fmt::format("{}: {}", file.string(), what),
              "see templates/base/template.toml for what may stand there");
}

}  // namespace

Result<RuntimeConfig> read_recipe(const fs::path& folder) {
  const auto file = folder / "template.toml";
  auto text = read_file(file, 64 << 10);
  if (!text) return bad(file, text.error().message);
  TRY(const toml::table table, read_toml(*text, [&](std::string_view what) { return bad(file, what); }));
  if (const char* key = unknown_key(table, {"user", "workdir", "size", "env", "start"}))
    return bad(file, fmt::format("'{}' is not known", key));

  RuntimeConfig config;
  if (table.contains("user")) {
    const auto user = table["user"].value_exact<std::string>();
    if (!user || user->empty() || user->size() > 32) return bad(file, "user must be a name of 1 to 32 bytes");
    config.user = *user;
  }
  if (table.contains("workdir")) {
    const auto workdir = table["workdir"].value_exact<std::string>();
    if (!workdir || !workdir->starts_with('/') || workdir->size() > 4096) return bad(file, "workdir must be an absolute path");
    config.workdir = *workdir;
  }
  if (table.contains("size")) {
    const auto* size = table["size"].as_table();
    if (!size) return bad(file, "[size] must be a table");
    if (const char* key = unknown_key(*size, {"cpus", "memory_mib", "disk_mib"}))
      return bad(file, fmt::format("size.{} is not known", key));
    struct Field {
      const char* name;
      std::uint32_t* value;
      std::int64_t least, most;
    };
    for (const auto& field : {Field{"cpus", &config.cpus, 1, 256}, Field{"memory_mib", &config.memory_mib, 64, 1 << 20},
                              Field{"disk_mib", &config.disk_mib, 256, 1 << 24}}) {
      if (!size->contains(field.name)) continue;
      const auto value = (*size)[field.name].value_exact<std::int64_t>();
      if (!value || *value < field.least || *value > field.most)
        return bad(file, fmt::format("size.{} must be a whole number from {} to {}", field.name, field.least, field.most));
      *field.value = static_cast<std::uint32_t>(*value);
    }
  }
  if (table.contains("env")) {
    const auto* env = table["env"].as_table();
    if (!env) return bad(file, "[env] must be a table");
    for (const auto& [key, value] : *env) {
      const auto content = value.value_exact<std::string>();
      if (!content) return bad(file, fmt::format("env.{} must be a text", key.str()));
      config.env.emplace(key.str(), *content);
    }
  }
  if (table.contains("start")) {
    const auto* start = table["start"].as_table();
    if (!start) return bad(file, "[start] must be a table");
    if (const char* key = unknown_key(*start, {"command", "ready"})) return bad(file, fmt::format("start.{} is not known", key));
    for (const auto& [name, into] : {std::pair{"command", &config.start}, std::pair{"ready", &config.ready}}) {
      if (!start->contains(name)) continue;
      const auto value = (*start)[name].value_exact<std::string>();
      if (!value || value->empty() || value->size() > kLongestCommand || value->find('\0') != std::string::npos)
        return bad(file, fmt::format("start.{} must be a command line of at most {} bytes", name, kLongestCommand));
      *into = *value;
    }
  }
  return config;
}

Result<fs::path> find_beside_program(std::string_view what, std::initializer_list<const char*> places) {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  std::string tried;
  for (auto folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    for (const char* place : places)
      if (fs::exists(folder / place, error)) return fs::canonical(folder / place, error);
    tried += " " + folder.string();
  }
  return fail(ErrorKind::not_found, "not_installed", fmt::format("{} was not found in or above{}", what, tried),
              "name its place with an option, or install space as a whole");
}

Result<fs::path> find_recipes() {
  return find_beside_program("templates/", {"share/space/templates/rootfs", "templates/rootfs"}).map([](const fs::path& path) {
    return path.parent_path();
  });
}

Result<fs::path> find_agent() {
  return find_beside_program("space-agent", {"space-agent", "libexec/space-agent", "src/agent/space-agent", "agent/space-agent"});
}

}  // namespace space::tmpl
