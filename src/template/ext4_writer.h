// A new ext4 file system in a file, filled from outside with libext2fs. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::tmpl {

struct FileAttributes {
  mode_t mode = 0;  // permissions only
  uid_t uid = 0;
  gid_t gid = 0;
  std::int64_t mtime = 0;                       // seconds; stands for every date of the inode
  std::map<std::string, std::string> extended;  // "security.capability" and so on
};

class Ext4Writer {
 public:
  // Makes the file system by mke2fs with our fixed settings. `now`: the date of everything that has none of its own.
  static Result<Ext4Writer> create(const std::filesystem::path& image, std::uint32_t size_mib, std::int64_t now);
  Ext4Writer(Ext4Writer&&) noexcept;
  Ext4Writer& operator=(Ext4Writer&&) noexcept;
  ~Ext4Writer();

  // Paths are relative ("usr/bin/env", "" for the root), each name once, parents first. template_image otherwise.
  Result<> folder(const std::string& path, const FileAttributes& attributes);
  Result<> begin_file(const std::string& path, const FileAttributes& attributes);
  Result<> append(std::string_view bytes);  // to the file begun last
  Result<> end_file();
  Result<> symlink(const std::string& path, const std::string& target, const FileAttributes& attributes);
  Result<> hard_link(const std::string& path, const std::string& target);
  Result<> finish();  // writes everything out; nothing may be called after it

 private:
  struct State;
  explicit Ext4Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace space::tmpl
