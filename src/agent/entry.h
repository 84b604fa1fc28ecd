// What is at a path, and its JSON. Names are bytes: one that is not UTF-8 travels as "name_base64" and "path_base64" beside a lossy text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>

#include "agent/accounts.h"
#include "base/json.h"
#include "base/result.h"

namespace space::agent {

struct Entry {
  std::string path;  // raw bytes, absolute
  struct stat status = {};
  std::optional<std::string> target;  // of a symlink
};

// Of the thing itself: a symlink is not followed. `folder` and `name` as for openat(2); `path` is what the entry says.
Result<Entry> read_entry(int folder, const char* name, std::string path);
json::object to_json(const Entry& entry, const Accounts& accounts);

std::string_view type_name(mode_t mode);  // "file", "dir", "symlink", "other"
// Puts a text under `name`, and its bytes under `name`_base64 when they are not UTF-8.
void put_bytes(json::object& object, std::string_view name, std::string_view bytes);

}  // namespace space::agent
