// A volume's folder and what E2B's content API does in it. The folder is a root of its own: every path is looked up inside it
// (openat2(2), RESOLVE_IN_ROOT), so that no symlink and no ".." leads out. Everything here blocks and acts as root: call it from a pool.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/content.h"
#include "agent/entry.h"

namespace space::agent {

inline constexpr const char* kVolumeFolder = "/srv/volume";
inline constexpr const char* kVolumeKey = "/srv/volume.key";  // beside it (fuse_server.h)
inline constexpr uid_t kVolumeUser = 1000;                    // who owns what is made without an owner: the templates' own user

// Absolute, without "." and ".." and NUL, as "/a/b"; "/" is the volume itself. invalid_argument/invalid_path.
Result<std::string> volume_path(std::string_view text);

struct Ownership {
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  std::optional<mode_t> mode;
};

class Volume {
 public:
  // Makes the folder when it is not there: everybody in a sandbox may write to a volume.
  static Result<Volume> open(const std::string& folder = kVolumeFolder);

  // `path` as volume_path gives it, here and below. An entry is of the thing itself, a symlink not followed.
  Result<Entry> stat(const std::string& path) const;
  Result<std::vector<Entry>> list(const std::string& path, int depth) const;  // too_large/too_many_entries
  // With `parents`, the folders above it too, and one that is there is fine; else conflict/already_exists.
  Result<Entry> make_folder(const std::string& path, const Ownership& of, bool parents) const;
  Result<> remove(const std::string& path) const;                            // with all that is in it
  Result<Entry> change(const std::string& path, const Ownership& to) const;  // symlinks are followed
  Result<OpenedFile> read(const std::string& path) const;

  // A new content of a file; the entry that comes out of `commit`.
  class Writing {
   public:
    Result<> write(std::span<const std::byte> bytes) { return upload_.write(bytes); }
    Result<Entry> commit();

   private:
    friend class Volume;
    Writing(Upload upload, std::string path) : upload_(std::move(upload)), path_(std::move(path)) {}
    Upload upload_;
    std::string path_;
  };
  Result<Writing> write(const std::string& path, const Ownership& of, bool parents) const;

 private:
  explicit Volume(Fd root) : root_(std::move(root)) {}
  struct Place {
    Fd folder;
    std::string name;
  };
  Result<Fd> open_at(const std::string& path, int flags) const;
  Result<Place> place(const std::string& path) const;   // the folder of the last part, and that part
  Result<Place> place_of_file(std::string path) const;  // the same at the end of symlinks
  Result<> make_parents(const std::string& path, const Ownership& of) const;
  Fd root_;
};

json::object volume_entry(const Entry& entry);  // E2B's VolumeEntryStat

}  // namespace space::agent
