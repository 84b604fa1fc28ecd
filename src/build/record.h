// A build as it is remembered: <root>/<id>.json, written durably at each change of its state, and <root>/<id>.log, lines of JSON that
// are written along. A kill leaves the record as it was; the log may lack its last lines. Blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "build/spec.h"

namespace space::build {

// waiting: made, and its steps not yet known (E2B's clients send files in between).
enum class BuildState { waiting, building, ready, failed, cancelled };

struct Build {
  std::string id, tenant;
  std::string name, tag;  // what it is published as; the tag is never reused
  BuildState state = BuildState::waiting;
  Spec spec;
  std::string alias_tags;  // of an E2B build: the tags to move to it at the end, with commas between; "" natively
  std::string digest;      // once ready
  std::optional<Error> error;
  std::string failed_step;  // "3" (from 1), "base" or "finalize"
  std::int64_t created_ms = 0, started_ms = 0, finished_ms = 0;
};

struct LogEntry {
  std::int64_t time_ms = 0;
  std::string level = "info";  // debug, info, warn, error
  std::string step;            // as failed_step
  std::string message;         // one line
};

std::string_view to_string(BuildState state);
inline bool is_over(BuildState state) {
  return state == BuildState::ready || state == BuildState::failed || state == BuildState::cancelled;
}

json::object write_build(const Build& build);
Result<Build> read_build(std::string_view text);  // strict: corrupt/build_unreadable

class BuildFiles {
 public:
  explicit BuildFiles(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }
  Result<> save(const Build& build) const;
  Result<> append(const std::string& id, const std::vector<LogEntry>& entries) const;
  Result<std::vector<LogEntry>> log(const std::string& id) const;  // lines that cannot be read are left out
  Result<> clear_log(const std::string& id) const;
  Result<std::vector<Build>> all() const;  // by time; unreadable ones are left out and logged
  Result<> remove(const std::string& id) const;

 private:
  std::filesystem::path root_;
};

}  // namespace space::build
