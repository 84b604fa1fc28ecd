#include "cli/local_templates.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "cli/exit_status.h"
#include "cli/local_needs.h"

namespace space::cli {
namespace {

Result<tmpl::Release> build(Console& console, BuildTemplateOptions& options) {
  auto& config = options.config;
  if (geteuid() != 0)
    return fail(ErrorKind::permission_denied, "not_root", "building a template needs root: it installs packages into a folder of its own",
                "run it with sudo");
  if (config.templates_dir.empty()) config.templates_dir = options.data_dir / "templates";
  if (config.recipes_dir.empty()) {
    TRY(config.recipes_dir, tmpl::find_recipes());
  }
  if (config.agent.empty()) {
    TRY(config.agent, tmpl::find_agent());
  }
  const auto begun = std::chrono::steady_clock::now();
  return tmpl::build(config, [&](const std::string& line) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count();
    if (!console.as_json()) console.note(fmt::format("    {:3d} s  {}", seconds, printable(line)));
  });
}

// As the server does it: the content goes with its last name, and then nobody may stand on it.
Result<> remove_unneeded(const std::filesystem::path& data_dir, const std::string& reference) {
  tmpl::TemplateStore templates(data_dir / "templates", data_dir / "node" / "templates");
  const auto release = templates.resolve(reference);
  if (!release) return templates.remove(reference);  // a damaged one may go; an unknown one is said to be
  TRY(const auto all, templates.list());
  const bool whole = reference.starts_with("sha256:");
  const bool last = std::none_of(all.begin(), all.end(), [&](const tmpl::Release& other) {
    return !whole && other.digest == release->digest && (other.name != release->name || other.tag != release->tag);
  });
  if (last) {
    TRY(const auto needs, local_needs(data_dir / "node"));
    TRY_VOID(tmpl::check_unneeded(reference, release->digest, needs));
  }
  return templates.remove(reference);
}

}  // namespace

int build_template(Console& console, BuildTemplateOptions options) {
  const auto release = build(console, options);
  if (!release) {
    console.error(release.error());
    return exit_status_of(release.error());
  }
  console.result(
      json::object{{"name", release->name},
                   {"tag", release->tag},
                   {"digest", release->digest},
                   {"image_digest", release->image_digest},
                   {"rootfs_bytes", release->rootfs_bytes}},
      fmt::format("template {}:{} is {} ({} on disk)", release->name, release->tag, release->digest, format_bytes(release->rootfs_bytes)));
  return 0;
}

int remove_local_template(Console& console, const std::filesystem::path& data_dir, const std::string& reference) {
  const auto removed = remove_unneeded(data_dir, reference);
  if (removed) return 0;
  console.error(removed.error());
  return exit_status_of(removed.error());
}

}  // namespace space::cli
