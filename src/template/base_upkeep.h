// Which bases lie on the disk, which of them nobody needs any more, and their removal. Blocks; use from a pool.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "vmm/driver.h"

namespace space::tmpl {

struct StoredBase {
  std::string key, release_digest, release_name;
  vmm::Size size;
  std::int64_t created_ms = 0;
  std::uint64_t bytes = 0;  // on the disk
};
Result<std::vector<StoredBase>> stored_bases(const std::filesystem::path& root);  // with a readable manifest; no folder: none

// The bases that a create would get now, as node saw them at its last look: <root>/current.json. Whoever does not run the driver
// (space gc) cannot tell by himself.
struct CurrentBases {
  std::set<std::string> keys;
  std::int64_t as_of_ms = 0;
};
Result<> write_current(const std::filesystem::path& root, const CurrentBases& current);
Result<CurrentBases> read_current(const std::filesystem::path& root);  // not_found before node's first look

// No create would get it, and no sandbox and no checkpoint (`needed`: their base keys) stands on it.
bool is_unneeded(const StoredBase& base, const CurrentBases& current, const std::set<std::string>& needed);

// By one rename; what is left after a crash in between, the next start of node removes (sweep_interrupted).
Result<> remove_base(const std::filesystem::path& root, const std::string& key);

}  // namespace space::tmpl
