// What the parent keeps on disk for each sandbox, below <data>/egress/sandboxes: <id>.json (settings, durable before an answer),
// <id>.changes (those of its policy that were announced and are not settled, one id a line; durable as well), <id>.total and <id>.names
// (one name a line, in the order of the addresses; survives the death of every process at once and a power cut from the next checkpoint on:
// what a VM that ran then remembered is gone with it, and what a checkpoint remembers is on the disk). All of it blocks.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "egress/name_map.h"

namespace space::egress {

inline constexpr std::size_t kLongestSettings = 8 << 20;  // of a sandbox, as JSON

class Records {
 public:
  explicit Records(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Result<> open() const;  // makes the folder

  struct Found {
    json::object settings;  // empty: none yet
    NameMap names;
    std::int64_t total_bytes = 0;
    std::set<std::string> changes;
  };
  // What cannot be read is left out and logged: such a sandbox has no network until it is set again.
  Result<std::map<std::string, Found>> load() const;
  Result<> save(const std::string& id, const json::object& settings) const;
  // More than before: durable when it returns. None: gone, and perhaps there again after a power cut.
  Result<> save_changes(const std::string& id, const std::set<std::string>& changes) const;
  Result<> save_names(const std::string& id, const NameMap& names) const;
  Result<> sync_names(const std::string& id) const;  // what add_name wrote is on the disk when it returns
  Result<> add_name(const std::string& id, const std::string& name) const;
  // How much of its bytes a sandbox has used up; as durable as add_name.
  Result<> save_total(const std::string& id, std::int64_t bytes) const;
  Result<> remove(const std::string& id) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace space::egress
