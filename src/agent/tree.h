// Folders: listing, making, moving, removing. Everything here blocks and acts with the rights of the calling thread: call it from a
// pool under an Impersonation. Paths are absolute (settings.h, absolute_path).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/entry.h"

namespace space::agent {

struct ListRequest {
  std::string path;
  int depth = 1;             // 1: the folder's own entries
  std::size_t limit = 1000;  // entries in the answer
  std::string after;         // a cursor, "" for the start
};

struct Listing {
  std::vector<Entry> entries;       // each folder before what is in it, names in the order of their bytes
  std::optional<std::string> next;  // a cursor when there is more
};

// Looks at one entry, as read_entry does.
using ReadEntry = std::function<Result<Entry>(int folder, const char* name, std::string path)>;

// An entry that `read` cannot look at, which is gone by then, is left out; what comes after it is not. A folder that the kernel does not
// give to its end is an error: a part is never told as the whole. Tests let names vanish by `read`.
Result<Listing> list_folder(const ListRequest& request, const ReadEntry& read = read_entry);

struct MadeFolder {
  Entry entry;
  bool created = false;  // false: it was there
};
Result<MadeFolder> make_folder(const std::string& path, mode_t mode, bool parents);
// Makes the folders above the last part of `path` (mode 0755).
Result<> make_parents(const std::string& path);

// Within one filesystem, atomically. Without `overwrite` an existing target is conflict/already_exists. Other filesystem:
// unsupported/cross_device.
Result<Entry> move_entry(const std::string& from, const std::string& to, bool overwrite, bool parents);

// A symlink is removed, not followed. A folder with something in it needs `recursive`: conflict/not_empty.
Result<> remove_entry(const std::string& path, bool recursive);

}  // namespace space::agent
