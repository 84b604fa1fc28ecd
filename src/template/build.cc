#include "template/build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/clock.h"
#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "template/command.h"
#include "template/image.h"
#include "template/initramfs.h"
#include "template/kernel.h"
#include "template/layout.h"
#include "template/lock_file.h"
#include "template/publish.h"
#include "template/recipe.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kLockBytes = 8 << 20;

// A folder of the store that only this build uses. Its lock tells a later build that the folder is not what a dead one left.
struct Staging {
  TempDir folder;
  Fd lock;
};

Result<Staging> make_staging(const fs::path& root) {
  TRY(auto names, list_directory(root));
  for (const auto& name : names) {
    if (!name.starts_with("staging-")) continue;
    auto left = open_file(root / name, O_RDONLY | O_DIRECTORY);
    if (left && flock(left->get(), LOCK_EX | LOCK_NB) == 0) TRY_VOID(remove_tree(root / name));
  }
  TRY(auto folder, TempDir::make(root, "staging-"));
  TRY(auto lock, open_file(folder.path(), O_RDONLY | O_DIRECTORY));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno(errno, "lock " + folder.path().string());
  return Staging{std::move(folder), std::move(lock)};
}

Result<> run_script(const BuildConfig& config, std::vector<std::string> argv, const Progress& progress) {
  Command command;
  argv.front() = (config.recipes_dir / argv.front()).string();
  argv.insert(argv.end(), {"--cache", config.cache_dir.string()});
  command.argv = std::move(argv);
  command.on_line = [&](const std::string& line) {
    if (line.starts_with("==> ")) progress(line.substr(4));
  };
  return run_command(command);
}

bool has_all_modules(const Layout& layout, const std::string& version) {
  const auto order = read_file(layout.kernel(version) / "modules" / "order", 64 << 10);
  return order && *order == guest_module_order();
}

bool somebody_signed(const Layout& layout) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(layout.tags(), error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".signature") return true;
  return false;
}

// The kernel package in `folder` goes into the store unless that version is there. Returns the version.
Result<std::string> keep_kernel(const Layout& layout, const fs::path& folder, const Progress& progress) {
  TRY(auto text, read_file(folder / "kernel", 4096));
  std::string package, version, hash, more;
  std::istringstream words(text);
  if (!(words >> package >> version >> hash) || words >> more || !is_version(version))
    return fail(ErrorKind::invalid_argument, "template_kernel",
                fmt::format("{} does not say PACKAGE VERSION SHA256", (folder / "kernel").string()), "run templates/kernel again");
  std::error_code error;
  if (fs::exists(layout.kernel(version) / "kernel.json", error) && (has_all_modules(layout, version) || somebody_signed(layout)))
    return version;

  progress("unpacking kernel " + version);
  TRY(auto deb, open_file(folder / "kernel.deb", O_RDONLY));
  TRY(auto digest, sha256_of_file(deb));
  if (digest_name(digest) != "sha256:" + hash)
    return fail(ErrorKind::corrupt, "template_kernel", "kernel.deb is not the file that was downloaded", "run templates/kernel again");
  const auto kernels = layout.kernel(version).parent_path();
  TRY_VOID(make_directories(kernels, 0755));
  TRY(auto staging, make_staging(kernels));
  const auto& aside = staging.folder.path();
  TRY_VOID(unpack_kernel_package(folder / "kernel.deb", aside));
  TRY(auto image, open_file(aside / "vmlinux", O_RDONLY));
  TRY(auto image_digest, sha256_of_file(image));
  TRY_VOID(write_file_durable(aside / "kernel.json",
                              json::serialize(json::object{{"format", 1},
                                                           {"package", package},
                                                           {"version", version},
                                                           {"package_sha256", hash},
                                                           {"vmlinux_digest", digest_name(image_digest)}}) +
                                  "\n",
                              0444));
  if (syncfs(image.get()) != 0) return fail_errno(errno, "sync the kernel");
  if (chmod(aside.c_str(), 0755) != 0) return fail_errno(errno, "chmod " + aside.string());
  TRY_VOID(remove_tree(layout.kernel(version)));  // without its record it is what an older build left
  if (rename(aside.c_str(), layout.kernel(version).c_str()) != 0) return fail_errno(errno, "rename to " + layout.kernel(version).string());
  TRY_VOID(sync_directory(kernels));
  return version;
}

// A store that an earlier version of SPACE made lacks modules that guests have now: its kernel is unpacked once more. A signature says
// which modules there are, so a store with signed templates stays as it is.
Result<> refresh_modules(const BuildConfig& config, const Layout& layout, const Progress& progress) {
  auto versions = list_directory(layout.root() / "kernels");
  if (!versions) return {};
  std::erase_if(*versions, [&](const std::string& version) { return !is_version(version) || has_all_modules(layout, version); });
  if (versions->empty()) return {};
  if (somebody_signed(layout)) {
    progress("the kernel stays without FUSE, which volumes need: templates in this store are signed with it");
    return {};
  }
  TRY(auto staging, make_staging(layout.root()));
  auto prepared = config.prepared;
  std::error_code error;
  if (prepared.empty() || !fs::exists(prepared / "kernel", error)) {
    prepared = staging.folder.path() / "prepared";
    const auto fetched = run_script(config, {"kernel", "--out", prepared.string()}, progress);
    if (!fetched) progress(fmt::format("the kernel stays without FUSE, which volumes need: {}", fetched.error().message));
    if (!fetched) return {};
  }
  TRY(const auto text, read_file(prepared / "kernel", 4096));
  std::istringstream words(text);
  std::string package, version;
  words >> package >> version;
  if (std::find(versions->begin(), versions->end(), version) == versions->end()) {
    progress("the kernel stays without FUSE, which volumes need: the package sources have another version by now");
    return {};
  }
  TRY(auto lock, layout.lock());
  TRY_VOID(keep_kernel(layout, prepared, progress));
  return {};
}

Result<> keep_initramfs(const Layout& layout, const std::string& version, const fs::path& agent) {
  TRY(auto bytes, make_initramfs(agent, layout.kernel(version) / "modules"));
  const auto name = hex_encode(sha256(bytes)) + ".cpio";
  const auto folder = layout.initramfs(version);
  const auto current = layout.current_initramfs(version);
  std::error_code error;
  const auto before = fs::read_symlink(current, error).string();
  if (!error && before == name && read_file(folder / name, bytes.size()) == bytes) return {};  // its name alone proves nothing

  TRY_VOID(make_directories(folder, 0755));
  TRY_VOID(write_file_durable(folder / name, bytes, 0444));
  const auto link = folder / (".current." + std::to_string(getpid()));
  fs::remove(link, error);
  fs::create_symlink(name, link, error);
  if (error) return fail_errno(error.value(), "link " + link.string());
  if (rename(link.c_str(), current.c_str()) != 0) return fail_errno(errno, "rename to " + current.string());
  TRY_VOID(sync_directory(folder));
  // The one before stays: a reader may have resolved its name and not opened it yet.
  TRY(auto names, list_directory(folder));
  for (const auto& old : names)
    if (old.ends_with(".cpio") && old != name && old != before) fs::remove(folder / old, error);
  return {};
}

Result<> check_lock(const fs::path& wanted, const fs::path& made) {
  TRY(auto text, read_file(made, kLockBytes));
  TRY(auto lock, parse_lock_file(text));
  if (wanted.empty()) return {};
  TRY(auto wanted_text, read_file(wanted, kLockBytes));
  TRY(auto wanted_lock, parse_lock_file(wanted_text));
  if (lock == wanted_lock) return {};
  return fail(ErrorKind::conflict, "template_lock", "the prepared root filesystem was made from another lock",
              "prepare it again with the same --lock");
}

// What the agent reads at boot (src/agent/settings.h): a guest knows its template without asking anybody.
std::string guest_settings(const RuntimeConfig& config) {
  json::object env;
  for (const auto& [name, value] : config.env) env[name] = value;
  json::object settings{{"user", config.user}, {"workdir", config.workdir}, {"env", std::move(env)}};
  if (!config.start.empty()) settings["start"] = config.start;  // only then: a template without one stays the same to the byte
  return json::serialize(settings) + "\n";
}

}  // namespace

Result<> refresh_initramfs(const fs::path& templates_dir, const fs::path& agent) {
  const Layout layout(templates_dir);
  auto versions = list_directory(templates_dir / "kernels");
  if (!versions) return versions.error().kind == ErrorKind::not_found ? Result<>{} : fail(std::move(versions).error());
  TRY(auto lock, layout.lock());
  for (const auto& version : *versions) {
    std::error_code error;
    if (is_version(version) && fs::exists(layout.kernel(version) / "kernel.json", error)) TRY_VOID(keep_initramfs(layout, version, agent));
  }
  return {};
}

Result<Release> build(const BuildConfig& config, const Progress& progress) {
  TRY(auto reference, parse_reference(config.reference));
  if (reference.name.empty())
    return fail(ErrorKind::invalid_argument, "template_reference", "a build needs a name, not a digest", "write NAME or NAME:TAG");
  umask(022);  // every process may read the store
  TemplateStore store(config.templates_dir);
  const Layout layout(config.templates_dir);
  const auto label = reference.name + ":" + reference.tag;

  if (config.if_absent) {
    auto present = store.resolve(label);
    if (present || present.error().kind != ErrorKind::not_found) {
      TRY_VOID(refresh_modules(config, layout, progress));
      TRY_VOID(refresh_initramfs(config.templates_dir, config.agent));
      return store.resolve(label);
    }
  }
  TRY(auto recipe, read_recipe(config.recipes_dir / reference.name));
  if (!config.lock.empty()) {
    TRY(auto text, read_file(config.lock, kLockBytes));
    TRY(auto lock, parse_lock_file(text));
    progress(fmt::format("the lock names {} packages", lock.packages.size()));
  }
  TRY_VOID(make_directories(config.templates_dir, 0755));
  TRY(auto staging, make_staging(config.templates_dir));
  const auto& aside = staging.folder.path();
  auto prepared = config.prepared;
  if (prepared.empty()) {
    TRY(auto scripts_own, TempDir::make(aside, "prepared-"));
    prepared = aside / "prepared";
    fs::rename(scripts_own.path(), prepared);
    TRY_VOID(run_script(config, {"kernel", "--out", prepared.string()}, progress));
    std::vector<std::string> rootfs = {"rootfs", (config.recipes_dir / reference.name).string(), "--out", prepared.string()};
    if (!config.lock.empty()) rootfs.insert(rootfs.end(), {"--lock", config.lock.string()});
    TRY_VOID(run_script(config, rootfs, progress));
  }
  TRY_VOID(check_lock(config.lock, prepared / "lock"));

  progress("writing the disk image");
  const auto release = aside / "release";
  TRY_VOID(make_directories(release, 0755));
  ImageSpec image;
  image.archive = prepared / "rootfs.tar";
  image.image = release / "rootfs.ext4";
  image.manifest = release / "manifest";
  image.disk_mib = recipe.disk_mib;
  image.files.emplace("etc/space/template.json", guest_settings(recipe));
  TRY(auto digests, make_image(image));
  {
    TRY(auto from, open_file(prepared / "lock", O_RDONLY));
    TRY(auto to, open_file(release / "lock", O_WRONLY | O_CREAT | O_EXCL, 0644));
    TRY_VOID(copy_file_sparse(from, to));
  }

  TRY(auto lock, layout.lock());
  TRY(auto version, keep_kernel(layout, prepared, progress));
  TRY_VOID(keep_initramfs(layout, version, config.agent));
  progress("publishing " + label);
  NewRelease next;
  next.name = reference.name;
  next.tag = reference.tag;
  next.config = recipe;
  next.tree_digest = digests.tree;
  next.image_digest = digests.image;
  next.kernel_version = version;
  next.staged = release;
  next.created_ms = system_clock().wall_ms();
  return publish(store, next);
}

}  // namespace space::tmpl
