// Templates that a running server published out of sandboxes. They stand on a release of the system's store: its root filesystem
// below, and one qcow2 overlay of their own, which nobody but a jailed VMM ever opens as an image. node owns this folder.
//
//   tags/<name>/<tag>.json      which content a tag names, since when, by which operation; written once
//   content/<64 hex>/release.json, disk.qcow2
//   staging-*                   what a publishing that was interrupted left
//
// A publishing is: stage_folder, the disk written there, place, a base made of it, name. A kill before `name` leaves content that no
// tag names: the next start sweeps it. Blocks; for one process at a time (node holds its own lock on the data folder).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "template/publish.h"
#include "template/release.h"

namespace space::tmpl {

class PublishedStore {
 public:
  explicit PublishedStore(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }

  // What stands below `parent`'s own: the parent of a published release is that release's parent.
  struct Order {
    std::string name, tag;
    RuntimeConfig config;
    Release parent;                // of the sandbox whose disk it is
    std::filesystem::path staged;  // as stage_folder gave it, with disk.qcow2 complete and closed
    std::int64_t created_ms = 0;
  };

  Result<std::filesystem::path> stage_folder() const;
  // Puts the content where it belongs. It has no name yet. conflict/template_tag_exists when the tag is taken.
  Result<Release> place(const TemplateStore& system, const Order& order) const;
  // Gives it its name, durably. The operation is kept, so that the same publishing asked for again is answered and not refused.
  Result<> name(const Release& release, const std::string& operation) const;
  Result<> drop(const std::string& digest) const;  // its content, unless a tag names it
  Result<> sweep() const;                          // all content without a name, and staging folders: when nothing is being published

  struct Tag {
    std::string digest, operation;
    std::int64_t created_ms = 0;
  };
  Result<Tag> tag(const std::string& name, const std::string& tag) const;  // not_found/template_not_found
  Result<Release> read(const TemplateStore& system, const std::string& name, const std::string& tag) const;
  Result<std::vector<std::pair<std::string, std::string>>> tags() const;   // (name, tag), sorted
  Result<> remove(const std::string& name, const std::string& tag) const;  // the name alone; drop follows
  Result<std::vector<std::string>> parents() const;                        // digests of the system's releases that stand below

 private:
  Result<Release> read_content(const TemplateStore& system, const std::string& name, const std::string& tag, const Tag& record) const;
  std::filesystem::path tag_file(const std::string& name, const std::string& tag) const { return root_ / "tags" / name / (tag + ".json"); }
  std::filesystem::path content(const std::string& digest) const;
  std::filesystem::path root_;
};

}  // namespace space::tmpl
