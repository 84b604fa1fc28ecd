// What the parent keeps on disk for each sandbox, below <data>/egress/sandboxes: <id>.json (settings, durable before an answer)
// and <id>.names (one name a line, in the order of the addresses; survives the death of every process, not a power cut, which
// the sandbox's VM does not survive either; checkpoints carry it themselves). All of it blocks.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "egress/name_map.h"

namespace space::egress {

class Records {
 public:
  explicit Records(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Result<> open() const;  // makes the folder

  struct Found {
    json::object settings;
    NameMap names;
  };
  // What cannot be read is left out and logged: such a sandbox has no network until it is set again.
  Result<std::map<std::string, Found>> load() const;
  Result<> save(const std::string& id, const json::object& settings) const;
  Result<> save_names(const std::string& id, const NameMap& names) const;
  Result<> add_name(const std::string& id, const std::string& name) const;
  Result<> remove(const std::string& id) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace space::egress
