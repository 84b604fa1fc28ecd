#include "template/published.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "snapshot/blob_store.h"
#include "template/layout.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPublishedBytes = 256 << 10;
constexpr const char* kDisk = "disk.qcow2";
constexpr std::string_view kStaging = "staging-";

tl::unexpected<Error> damaged(std::string_view release, std::string_view what) {
  return fail(ErrorKind::corrupt, "template_corrupt", fmt::format("template {} is damaged: {}", release, what),
              fmt::format("remove it with 'space template rm {}' and publish it again", release));
}

tl::unexpected<Error> unknown(const std::string& label) {
  return fail(ErrorKind::not_found, "template_not_found", fmt::format("there is no template '{}' on this machine", label),
              "list them with 'space template ls'");
}

Result<std::pair<std::uint64_t, std::string>> seal(const fs::path& path) {
  TRY(const Fd fd, open_file(path, O_RDONLY));
  TRY(const Sha256 digest, sha256_of_file(fd));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "fstat " + path.string());
  if (::fsync(fd.get()) != 0) return fail_errno(errno, "fsync " + path.string());
  if (::fchmod(fd.get(), 0400) != 0) return fail_errno(errno, "chmod " + path.string());
  return std::pair(static_cast<std::uint64_t>(st.st_size), digest_name(digest));
}

std::string kernel_version(const Release& release) { return release.kernel.parent_path().filename().string(); }

json::object record_of(const PublishedStore::Order& order, const std::string& digest, std::uint64_t bytes, const std::string& disk) {
  json::object env;
  for (const auto& [key, value] : order.config.env) env[key] = value;
  const RuntimeConfig& c = order.config;
  return {{"format", 1},
          {"digest", digest},
          {"parent", order.parent.stands_on.empty() ? order.parent.digest : order.parent.stands_on},
          {"kernel", kernel_version(order.parent)},
          {"disk", json::object{{"bytes", bytes}, {"digest", disk}}},
          {"cpus", c.cpus},
          {"memory_mib", c.memory_mib},
          {"disk_mib", c.disk_mib},
          {"env", env},
          {"user", c.user},
          {"workdir", c.workdir},
          {"start", c.start},
          {"ready", c.ready}};
}

}  // namespace

fs::path PublishedStore::content(const std::string& digest) const { return root_ / "content" / digest.substr(digest.find(':') + 1); }

Result<fs::path> PublishedStore::stage_folder() const {
  const auto folder = root_ / (std::string(kStaging) + new_id());
  TRY_VOID(make_directories(folder, 0700));
  return folder;
}

Result<Release> PublishedStore::place(const TemplateStore& system, const Order& order) const {
  const std::string label = order.name + ":" + order.tag;
  const auto taken = system.resolve(label);
  if (taken)
    return fail(ErrorKind::conflict, "template_tag_exists", fmt::format("template {} is published already, and stays what it is", label),
                "publish it under another tag");
  if (taken.error().kind != ErrorKind::not_found) return fail(taken.error());
  TRY(const auto disk, seal(order.staged / kDisk));
  const std::string& below = order.parent.stands_on.empty() ? order.parent.digest : order.parent.stands_on;
  const std::string digest = release_digest(digest_name(sha256(fmt::format("below {}\ndisk {}\n", below, disk.second))), order.config);
  const auto target = content(digest);
  TRY_VOID(
      write_file_durable(order.staged / "release.json", json::serialize(record_of(order, digest, disk.first, disk.second)) + "\n", 0400));
  TRY_VOID(sync_directory(order.staged));
  TRY_VOID(make_directories(root_ / "content", 0700));
  std::error_code error;
  if (fs::exists(target / "release.json", error))
    TRY_VOID(remove_tree(order.staged));
  else {
    TRY_VOID(remove_tree(target));
    if (::rename(order.staged.c_str(), target.c_str()) != 0) return fail_errno(errno, "rename to " + target.string());
    TRY_VOID(sync_directory(root_ / "content"));
  }
  return read_content(system, order.name, order.tag, Tag{digest, "", order.created_ms});
}

Result<> PublishedStore::name(const Release& release, const std::string& operation) const {
  TRY_VOID(make_directories(root_ / "tags" / release.name, 0700));
  TRY_VOID(sync_directory(root_ / "tags"));
  const json::object record{{"format", 1}, {"digest", release.digest}, {"operation", operation}, {"created_ms", release.created_ms}};
  return write_file_durable(tag_file(release.name, release.tag), json::serialize(record) + "\n", 0400);
}

Result<> PublishedStore::drop(const std::string& digest) const {
  TRY(const auto all, tags());
  for (const auto& [name, tag_name] : all)
    if (const auto known = tag(name, tag_name); known && known->digest == digest) return {};
  return remove_tree(content(digest));
}

Result<> PublishedStore::sweep() const {
  TRY_VOID(make_directories(root_, 0700));
  TRY(const auto entries, list_directory(root_));
  for (const auto& entry : entries)
    if (entry.starts_with(kStaging)) TRY_VOID(remove_tree(root_ / entry));
  auto contents = list_directory(root_ / "content");
  if (!contents) return {};
  std::set<std::string> named;
  TRY(const auto all, tags());
  for (const auto& [name, tag_name] : all)
    if (const auto known = tag(name, tag_name)) named.insert(known->digest);
  for (const auto& folder : *contents)
    if (!named.contains("sha256:" + folder)) TRY_VOID(remove_tree(root_ / "content" / folder));
  return {};
}

Result<PublishedStore::Tag> PublishedStore::tag(const std::string& name, const std::string& tag) const {
  const auto label = name + ":" + tag;
  auto text = read_file(tag_file(name, tag), kPublishedBytes);
  if (!text) return text.error().kind == ErrorKind::not_found ? unknown(label) : damaged(label, describe(text.error()));
  auto object = parse_json_object(*text, kPublishedBytes);
  if (!object) return damaged(label, "its tag is not JSON");
  JsonReader r(*object);
  Tag out;
  r.number("format", 1, 1);
  out.digest = r.text("digest", 71, 71);
  out.operation = r.text("operation", 0, 64, "");
  out.created_ms = r.number("created_ms", 0, INT64_MAX);
  if (auto done = r.done(); !done) return damaged(label, done.error().message);
  if (!snapshot::is_digest(out.digest)) return damaged(label, "its tag names no content");
  return out;
}

Result<Release> PublishedStore::read(const TemplateStore& system, const std::string& name, const std::string& tag_name) const {
  TRY(const Tag record, tag(name, tag_name));
  return read_content(system, name, tag_name, record);
}

Result<Release> PublishedStore::read_content(const TemplateStore& system, const std::string& name, const std::string& tag_name,
                                             const Tag& record) const {
  const auto label = name + ":" + tag_name;
  auto text = read_file(content(record.digest) / "release.json", kPublishedBytes);
  if (!text) return damaged(label, "content " + record.digest + " has no readable release.json");
  auto object = parse_json_object(*text, kPublishedBytes);
  if (!object) return damaged(label, "release.json is not JSON: " + object.error().message);
  Release out;
  JsonReader r(*object);
  r.number("format", 1, 1);
  out.digest = r.text("digest", 71, 71);
  out.stands_on = r.text("parent", 71, 71);
  const std::string kernel = r.text("kernel", 1, 100);
  if (const json::object* disk = r.object("disk")) {
    JsonReader inner(*disk, "disk");
    out.disk_bytes = static_cast<std::uint64_t>(inner.number("bytes", 1, INT64_MAX));
    out.disk_digest = inner.text("digest", 71, 71);
    if (auto done = inner.done(); !done) r.reject("disk", done.error().message);
  }
  read_runtime(r, out);
  if (auto done = r.done(); !done) return damaged(label, "release.json: " + done.error().message);
  if (out.digest != record.digest || !snapshot::is_digest(out.stands_on) || !snapshot::is_digest(out.disk_digest) || !is_version(kernel))
    return damaged(label, "release.json belongs to another digest");
  // The files of the release below it, whatever names that has now.
  const Layout layout(system.root());
  std::error_code error;
  out.name = name;
  out.tag = tag_name;
  out.created_ms = record.created_ms;
  out.image_digest = out.stands_on;
  out.rootfs = layout.content(out.stands_on) / "rootfs.ext4";
  out.kernel = layout.kernel(kernel) / "vmlinux";
  out.initramfs = fs::canonical(layout.current_initramfs(kernel), error);
  if (error) return damaged(label, fmt::format("no initramfs for kernel {}", kernel));
  out.disk = content(record.digest) / kDisk;
  for (const auto& file : {out.rootfs, out.kernel, out.disk})
    if (!fs::is_regular_file(file, error)) return damaged(label, fmt::format("{} is missing", file.string()));
  struct stat st {};
  if (::stat(out.disk.c_str(), &st) == 0) out.rootfs_bytes = static_cast<std::uint64_t>(st.st_blocks) * 512;
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> PublishedStore::tags() const {
  std::vector<std::pair<std::string, std::string>> out;
  auto names = list_directory(root_ / "tags");
  if (!names) return out;  // nothing was published yet, or this is not for our eyes
  for (const auto& name : *names) {
    auto files = list_directory(root_ / "tags" / name);
    if (!files) continue;
    for (const auto& file : *files) {
      if (!file.ends_with(".json")) continue;
      auto tag_name = file.substr(0, file.size() - 5);
      if (parse_reference(name + ":" + tag_name)) out.emplace_back(name, std::move(tag_name));
    }
  }
  return out;
}

Result<> PublishedStore::remove(const std::string& name, const std::string& tag_name) const {
  std::error_code error;
  if (!fs::remove(tag_file(name, tag_name), error) && !error) return unknown(name + ":" + tag_name);
  if (error) return fail_errno(error.value(), "remove " + tag_file(name, tag_name).string());
  TRY_VOID(sync_directory(root_ / "tags" / name));
  fs::remove(root_ / "tags" / name, error);  // when it is empty
  return {};
}

Result<std::vector<std::string>> PublishedStore::parents() const {
  std::vector<std::string> out;
  auto contents = list_directory(root_ / "content");
  if (!contents) return out;
  for (const auto& folder : *contents) {
    auto text = read_file(root_ / "content" / folder / "release.json", kPublishedBytes);
    if (!text) continue;
    auto object = parse_json_object(*text, kPublishedBytes);
    const json::value* parent = object ? object->if_contains("parent") : nullptr;
    if (parent && parent->is_string()) out.emplace_back(parent->get_string());
  }
  return out;
}

}  // namespace space::tmpl
