#include "template/publish.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "template/layout.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

Result<> write_synced(const fs::path& path, std::string_view content) {
  TRY(auto fd, open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  TRY_VOID(write_all(fd, content));
  if (fsync(fd.get()) != 0) return fail_errno(errno, "fsync " + path.string());
  return {};
}

// Everything staged is on the disk before its folder gets its name.
Result<> sync_staged(const fs::path& folder) {
  TRY(auto names, list_directory(folder));
  for (const auto& name : names) {
    TRY(auto fd, open_file(folder / name, O_RDONLY));
    if (fsync(fd.get()) != 0) return fail_errno(errno, "fsync " + (folder / name).string());
    if (fchmod(fd.get(), 0444) != 0) return fail_errno(errno, "chmod " + (folder / name).string());
  }
  return sync_directory(folder);
}

std::string content_record(const NewRelease& next, const std::string& digest, std::uint64_t bytes) {
  json::object env;
  for (const auto& [key, value] : next.config.env) env[key] = value;
  return json::serialize(json::object{{"format", 1},
                                      {"digest", digest},
                                      {"tree_digest", next.tree_digest},
                                      {"image_digest", next.image_digest},
                                      {"cpus", next.config.cpus},
                                      {"memory_mib", next.config.memory_mib},
                                      {"disk_mib", next.config.disk_mib},
                                      {"env", env},
                                      {"user", next.config.user},
                                      {"workdir", next.config.workdir},
                                      {"start", next.config.start},
                                      {"ready", next.config.ready},
                                      {"rootfs_bytes", bytes}}) +
         "\n";
}

Result<> place_content(const Layout& layout, const NewRelease& next, const std::string& digest) {
  const auto target = layout.content(digest);
  std::error_code error;
  if (fs::exists(target / "release.json", error)) return {};
  TRY_VOID(remove_tree(target));  // a folder without its record is none of ours: publish writes the record before the rename
  struct stat status {};
  if (stat((next.staged / "rootfs.ext4").c_str(), &status) != 0) return fail_errno(errno, "stat the staged rootfs.ext4");
  TRY_VOID(write_synced(next.staged / "release.json", content_record(next, digest, static_cast<std::uint64_t>(status.st_blocks) * 512)));
  TRY_VOID(sync_staged(next.staged));
  if (chmod(next.staged.c_str(), 0755) != 0) return fail_errno(errno, "chmod " + next.staged.string());
  TRY_VOID(make_directories(layout.contents(), 0755));
  if (rename(next.staged.c_str(), target.c_str()) != 0) return fail_errno(errno, "rename to " + target.string());
  return sync_directory(layout.contents());
}

}  // namespace

std::string release_digest(const std::string& tree_digest, const RuntimeConfig& config) {
  // Keys of a std::map are sorted, so the text is the same for the same configuration.
  json::object env;
  for (const auto& [key, value] : config.env) env[key] = value;
  auto text = fmt::format("space-template 1\ntree {}\ncpus {}\nmemory_mib {}\ndisk_mib {}\nenv {}\nuser {}\nworkdir {}\n", tree_digest,
                          config.cpus, config.memory_mib, config.disk_mib, json::serialize(env), json::serialize(json::string(config.user)),
                          json::serialize(json::string(config.workdir)));
  if (!config.start.empty()) text += fmt::format("start {}\n", json::serialize(json::string(config.start)));
  if (!config.ready.empty()) text += fmt::format("ready {}\n", json::serialize(json::string(config.ready)));
  return digest_name(sha256(text));
}

Result<Release> publish(const TemplateStore& store, const NewRelease& next) {
  const Layout layout(store.root());
  const auto label = next.name + ":" + next.tag;
  TRY(auto reference, parse_reference(label));
  if (!is_version(next.kernel_version))
    return fail(ErrorKind::invalid_argument, "kernel_version", "'" + next.kernel_version + "' is not a kernel version");
  const auto digest = release_digest(next.tree_digest, next.config);

  auto present = store.resolve(label);
  if (!present && present.error().kind != ErrorKind::not_found) return present;
  if (present && present->digest != digest)
    return fail(ErrorKind::conflict, "template_tag_exists",
                fmt::format("template {} is published with digest {}, and this build has {}", label, present->digest, digest),
                fmt::format("publish it under another tag, or remove the old one first with 'space template rm {}'", label));
  if (present) {
    TRY_VOID(remove_tree(next.staged));
    return present;
  }

  TRY_VOID(place_content(layout, next, digest));
  TRY_VOID(remove_tree(next.staged));  // the content was there already
  TRY_VOID(make_directories(layout.tags() / next.name, 0755));
  TRY_VOID(write_file_durable(
      layout.tag(next.name, next.tag),
      json::serialize(json::object{{"format", 1}, {"digest", digest}, {"kernel", next.kernel_version}, {"created_ms", next.created_ms}}) +
          "\n",
      0644));
  return store.resolve(label);
}

}  // namespace space::tmpl
