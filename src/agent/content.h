// The content of files. Everything here blocks and acts with the rights of the calling thread: call it from a pool under an
// Impersonation. Reading and writing on an open file need no rights any more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "agent/entry.h"
#include "base/fd.h"

namespace space::agent {

struct OpenedFile {
  Fd file;
  struct stat status = {};
};
// A regular file, symlinks followed. Folder: is_a_directory; device, pipe, socket: not_a_file (and it is not opened).
Result<OpenedFile> open_for_reading(const std::string& path);

struct UploadOptions {
  std::optional<mode_t> mode;  // absent: that of the existing file, else 0644
  std::optional<uid_t> owner;  // only root may give files away
  std::optional<gid_t> group;
  bool parents = false;
  bool follow = true;    // symlinks at the end of the path; else they are refused
  bool durable = false;  // the name too, not the content alone, outlives the machine once it is committed
};

// New content for a path. Symlinks are followed to what they name, also when that is not there yet. Normally the content goes to a
// nameless file beside the target, which gets mode and owner of the existing file, is synced and takes its name in one step: a
// reader sees the old or the new content, and whatever goes wrong leaves nothing behind.
// In place, not atomically, is written what a replacement would change: a file with several hard links, of another owner, or in a
// folder in which the user may not make files.
class Upload {
 public:
  static Result<Upload> begin(const std::string& path, const UploadOptions& options, uid_t user);
  Upload(Upload&&) = default;
  Upload& operator=(Upload&&) = default;
  ~Upload();

  Result<> write(std::span<const std::byte> bytes);  // ENOSPC: insufficient_storage/no_space
  struct Done {
    Entry entry;
    bool created = false;
  };
  Result<Done> commit();

 private:
  Upload() = default;
  Result<> find_place(const std::string& path);
  Result<> look_at_existing(uid_t user);
  Result<> open_temporary();
  Result<> take_name();

  std::string shown_;  // the path that was asked for
  Fd folder_;          // of the target, O_PATH
  std::string name_;   // in that folder
  Fd existing_;        // open for writing, when there is one
  struct stat before_ = {};
  bool exists_ = false;
  bool in_place_ = false;
  bool truncated_ = false;
  Fd file_;                // what is written to, unless in place
  std::string temporary_;  // its name while it has one
  UploadOptions options_;
  std::uint64_t written_ = 0, flushing_ = 0;
};

}  // namespace space::agent
