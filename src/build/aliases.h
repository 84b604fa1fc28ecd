// E2B's names of templates, whose tags move: each stands for a release, which is published under a tag of its own and never changes.
// One file, written durably. `find` and `list` are for the loop; `set` and `drop` change memory, and their caller saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace space::build {

struct AliasTag {
  std::string reference;  // "name:b-…"
  std::string build;      // that made it
  std::int64_t created_ms = 0;
};

class Aliases {
 public:
  explicit Aliases(std::filesystem::path file) : file_(std::move(file)) {}
  Result<> load();                                                                   // blocks
  static Result<> save(const std::filesystem::path& file, const std::string& text);  // blocks
  std::string text() const;
  const std::filesystem::path& file() const { return file_; }

  // What a name and a tag ("default" when none is said) stand for.
  std::optional<AliasTag> find(const std::string& name, const std::string& tag) const;
  const std::map<std::string, AliasTag>* tags(const std::string& name) const;  // nullptr: there is no such name
  const std::map<std::string, std::map<std::string, AliasTag>>& all() const { return all_; }
  void set(const std::string& name, const std::string& tag, AliasTag target);
  void drop(const std::string& name, const std::string& tag);
  void drop_name(const std::string& name);
  // "name:tag" of a release back to the name that people use: the part before the colon when it is one of ours.
  std::optional<std::string> name_of(const std::string& reference) const;

 private:
  std::filesystem::path file_;
  std::map<std::string, std::map<std::string, AliasTag>> all_;
};

}  // namespace space::build
