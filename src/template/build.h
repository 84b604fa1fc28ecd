// Building a template: root filesystem by mmdebstrap, kernel out of Debian's cloud package, our initramfs with the agent.
// Everything here blocks, for minutes where packages are downloaded, and writes the store: root, no event loop.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "template/release.h"

namespace space::tmpl {

// One line for a person about what happens now ("installing 517 packages").
using Progress = std::function<void(const std::string& line)>;

struct BuildConfig {
  std::filesystem::path templates_dir;                   // the store
  std::filesystem::path recipes_dir;                     // the repository's templates/, or where it is installed (find_recipes)
  std::filesystem::path agent;                           // the static agent that becomes /init
  std::filesystem::path cache_dir = "/var/cache/space";  // downloaded packages, by hash; may be deleted at any time
  std::string reference = "base:latest";                 // the name is that of a folder in recipes_dir
  std::filesystem::path lock;                            // "": the newest packages; else exactly these
  std::filesystem::path prepared;  // "": run the scripts; else a folder in which `rootfs` and `kernel` have already put their files
  bool if_absent = false;  // a release that exists is left as it is; its initramfs, and the modules in it, are still brought up to date
};

// Builds and publishes. Errors: template_tag_exists (see publish.h), template_recipe, template_script (the script's own words),
// template_lock, template_kernel, template_image, agent_missing, and those of files.
Result<Release> build(const BuildConfig& config, const Progress& progress);

// Makes the initramfs of every kernel in the store from this agent, where it is not so already (compares content). Some
// milliseconds when nothing changed. To be called by whoever starts the server as root.
Result<> refresh_initramfs(const std::filesystem::path& templates_dir, const std::filesystem::path& agent);

// templates/ and the agent beside the running program: <prefix>/share/space/templates and <prefix>/libexec/space-agent of an
// installation, or those of the source tree that it was built in. not_found names the places tried.
Result<std::filesystem::path> find_recipes();
// The first of `places` that exists in the folder of this program or one above it. not_found/not_installed.
Result<std::filesystem::path> find_beside_program(std::string_view what, std::initializer_list<const char*> places);
Result<std::filesystem::path> find_agent();

}  // namespace space::tmpl
