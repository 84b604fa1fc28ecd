#include "template/release.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "snapshot/blob_store.h"
#include "template/layout.h"
#include "template/published.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kRecordBytes = 64 << 10;

bool is_word(std::string_view text, bool dots) {
  if (text.empty() || text.size() > 64 || text.front() == '.') return false;
  return std::all_of(text.begin(), text.end(), [dots](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || (dots && c == '.');
  });
}

tl::unexpected<Error> not_found(std::string_view reference) {
  return fail(ErrorKind::not_found, "template_not_found", fmt::format("there is no template '{}' on this machine", reference),
              "list them with 'space template ls', or build one with 'space template build'");
}

tl::unexpected<Error> damaged(std::string_view release, std::string_view what) {
  return fail(ErrorKind::corrupt, "template_corrupt", fmt::format("template {} is damaged: {}", release, what),
              fmt::format("remove it with 'space template rm {}' and build it again", release));
}

struct TagRecord {
  std::string digest, kernel;
  std::int64_t created_ms = 0;
};

Result<TagRecord> read_tag(const Layout& layout, const std::string& name, const std::string& tag) {
  const auto label = name + ":" + tag;
  auto text = read_file(layout.tag(name, tag), kRecordBytes);
  if (!text) {
    if (text.error().kind == ErrorKind::not_found) return not_found(label);
    return damaged(label, describe(text.error()));
  }
  auto object = parse_json_object(*text);
  if (!object) return damaged(label, "its tag is not JSON: " + object.error().message);
  JsonReader r(*object);
  r.number("format", 1, 1);
  TagRecord record;
  record.digest = r.text("digest", 71, 71);
  record.kernel = r.text("kernel", 1, 100);
  record.created_ms = r.number("created_ms", 0, INT64_MAX);
  if (auto done = r.done(); !done) return damaged(label, "its tag: " + done.error().message);
  if (!snapshot::is_digest(record.digest) || !is_version(record.kernel)) return damaged(label, "its tag names no content");
  return record;
}

// The record in content/<digest>/, and the files that it and `tag` stand for.
Result<Release> read_content(const Layout& layout, std::string name, std::string tag, const TagRecord& record) {
  const auto label = name + ":" + tag;
  const auto folder = layout.content(record.digest);
  auto text = read_file(folder / "release.json", kRecordBytes);
  if (!text) return damaged(label, "content " + record.digest + " has no readable release.json");
  auto object = parse_json_object(*text);
  if (!object) return damaged(label, "release.json is not JSON: " + object.error().message);

  Release release;
  JsonReader r(*object);
  r.number("format", 1, 1);
  release.digest = r.text("digest", 71, 71);
  release.image_digest = r.text("image_digest", 71, 71);
  r.text("tree_digest", 71, 71);
  read_runtime(r, release);
  release.rootfs_bytes = static_cast<std::uint64_t>(r.number("rootfs_bytes", 0, INT64_MAX));
  if (auto done = r.done(); !done) return damaged(label, "release.json: " + done.error().message);
  if (release.digest != record.digest || !snapshot::is_digest(release.image_digest))
    return damaged(label, "release.json belongs to another digest");

  release.name = std::move(name);
  release.tag = std::move(tag);
  release.created_ms = record.created_ms;
  release.rootfs = folder / "rootfs.ext4";
  release.kernel = layout.kernel(record.kernel) / "vmlinux";
  std::error_code error;
  release.initramfs = fs::canonical(layout.current_initramfs(record.kernel), error);
  if (error) return damaged(label, fmt::format("no initramfs for kernel {}", record.kernel));
  for (const auto& file : {release.rootfs, release.kernel})
    if (!fs::is_regular_file(file, error)) return damaged(label, fmt::format("{} is missing", file.string()));
  return release;
}

// Every (name, tag) that has a file, valid or not.
Result<std::vector<std::pair<std::string, std::string>>> tag_names(const Layout& layout) {
  std::vector<std::pair<std::string, std::string>> out;
  auto names = list_directory(layout.tags());
  if (!names) {
    if (names.error().kind == ErrorKind::not_found) return out;
    return fail(std::move(names).error());
  }
  for (const auto& name : *names) {
    if (!is_word(name, false)) continue;
    TRY(auto files, list_directory(layout.tags() / name));
    for (const auto& file : files) {
      if (!file.ends_with(".json")) continue;
      auto tag = file.substr(0, file.size() - 5);
      if (is_word(tag, true)) out.emplace_back(name, std::move(tag));
    }
  }
  return out;
}

}  // namespace

void read_runtime(JsonReader& from, Release& into) {
  into.cpus = static_cast<std::uint32_t>(from.number("cpus", 1, 256));
  into.memory_mib = static_cast<std::uint32_t>(from.number("memory_mib", 64, 1 << 20));
  into.disk_mib = static_cast<std::uint32_t>(from.number("disk_mib", 64, 1 << 24));
  into.env = from.text_map("env", 256, 32 << 10);
  into.user = from.text("user", 1, 32);
  into.workdir = from.text("workdir", 0, 4096, "");
  into.start = from.text("start", 0, kLongestCommand, "");
  into.ready = from.text("ready", 0, kLongestCommand, "");
}

Result<Reference> parse_reference(std::string_view text) {
  if (snapshot::is_digest(text)) return Reference{"", "", std::string(text)};
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  const auto tag = colon == std::string_view::npos ? std::string_view("latest") : text.substr(colon + 1);
  if (!is_word(name, false) || !is_word(tag, true) || name == "sha256")
    return fail(ErrorKind::invalid_argument, "template_reference", fmt::format("'{}' is not a template", text.substr(0, 200)),
                "write NAME, NAME:TAG or sha256:DIGEST, with small letters, digits, '-', '_' and, in the tag, '.'");
  return Reference{std::string(name), std::string(tag), ""};
}

Result<Release> TemplateStore::resolve(std::string_view reference) const {
  const Layout layout(root_);
  TRY(auto wanted, parse_reference(reference));
  if (wanted.digest.empty()) {
    auto record = read_tag(layout, wanted.name, wanted.tag);
    if (!record && record.error().kind == ErrorKind::not_found && !published_.empty())
      return PublishedStore(published_).read(*this, wanted.name, wanted.tag);
    if (!record) return fail(std::move(record).error());
    return read_content(layout, wanted.name, wanted.tag, *record);
  }
  TRY(auto tags, tag_names(layout));
  for (const auto& [name, tag] : tags) {
    auto record = read_tag(layout, name, tag);
    if (record && record->digest == wanted.digest) return read_content(layout, name, tag, *record);
  }
  if (published_.empty()) return not_found(reference);
  const PublishedStore published(published_);
  TRY(auto more, published.tags());
  for (const auto& [name, tag] : more) {
    auto record = published.tag(name, tag);
    if (record && record->digest == wanted.digest) return published.read(*this, name, tag);
  }
  return not_found(reference);
}

Result<std::vector<Release>> TemplateStore::list() const {
  const Layout layout(root_);
  TRY(auto tags, tag_names(layout));
  if (!published_.empty()) {
    TRY(auto more, PublishedStore(published_).tags());
    tags.insert(tags.end(), more.begin(), more.end());
  }
  std::vector<Release> out;
  for (const auto& [name, tag] : tags) {
    auto release = resolve(name + ":" + tag);
    if (release)
      out.push_back(std::move(*release));
    else if (release.error().kind != ErrorKind::not_found)  // not_found: removed since the listing
      log::warn("template.damaged", {{"template", name + ":" + tag}, {"error", release.error()}});
  }
  return out;
}

Result<> TemplateStore::remove(std::string_view reference) {
  const Layout layout(root_);
  TRY(auto wanted, parse_reference(reference));
  if (!published_.empty()) {
    const PublishedStore published(published_);
    TRY(auto theirs, published.tags());
    bool found = false;
    for (const auto& [name, tag] : theirs) {
      auto record = published.tag(name, tag);
      const bool chosen = wanted.digest.empty() ? name == wanted.name && tag == wanted.tag : record && record->digest == wanted.digest;
      if (!chosen) continue;
      TRY_VOID(published.remove(name, tag));
      if (record) TRY_VOID(published.drop(record->digest));
      found = true;
    }
    if (found) return {};
  }
  auto lock = layout.lock();
  if (!lock && lock.error().kind == ErrorKind::permission_denied)
    return fail(ErrorKind::permission_denied, "template_store_owner",
                "templates belong to root on the server's machine, and the server does not run as root",
                fmt::format("run 'space template rm --local {}' there as root", reference));
  if (!lock) return fail(std::move(lock).error());
  TRY(auto tags, tag_names(layout));
  // A damaged tag names no content: it can be removed by its name, and content that no readable tag names goes too.
  bool found = false;
  std::vector<std::string> kept;
  for (const auto& [name, tag] : tags) {
    auto record = read_tag(layout, name, tag);
    const bool chosen = wanted.digest.empty() ? name == wanted.name && tag == wanted.tag : record && record->digest == wanted.digest;
    if (!chosen) {
      if (record) kept.push_back(record->digest);
      continue;
    }
    found = true;
    std::error_code error;
    fs::remove(layout.signature(name, tag), error);  // first: a signature never lies beside a tag that came later
    if (!error) fs::remove(layout.tag(name, tag), error);
    if (error) return fail_errno(error.value(), "remove " + layout.tag(name, tag).string());
    TRY_VOID(sync_directory(layout.tags() / name));
  }
  if (!found) return not_found(reference);

  // What was published out of sandboxes stands on its release's files, whatever names that has.
  if (!published_.empty()) {
    TRY(auto below, PublishedStore(published_).parents());
    kept.insert(kept.end(), below.begin(), below.end());
  }
  auto contents = list_directory(layout.contents());
  if (!contents) return {};
  for (const auto& folder : *contents) {
    if (std::find(kept.begin(), kept.end(), "sha256:" + folder) == kept.end()) TRY_VOID(remove_tree(layout.contents() / folder));
  }
  return {};
}

}  // namespace space::tmpl
