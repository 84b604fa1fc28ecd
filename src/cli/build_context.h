// The files that a build copies: found in a folder of this machine, packed into archives that are the same for the same files. Blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space::cli {

struct PackedFiles {
  Fd file;  // a nameless file
  std::uint64_t bytes = 0;
  std::string digest;  // 64 hex digits, of the bytes
};

class BuildContext {
 public:
  // Reads .dockerignore when there is one. invalid_argument/dockerignore names a line with a pattern that is not understood.
  static Result<BuildContext> open(const std::filesystem::path& root);
  // What a COPY's source names, relative to the folder, sorted. Patterns are those of glob(7). not_found/no_such_source.
  Result<std::vector<std::string>> match(const std::string& source) const;
  // One of them as a tar: a file, a link, or a folder with all that is in it and not ignored. Owner root, a fixed date: what counts is
  // content, names and modes.
  Result<PackedFiles> pack(const std::string& entry) const;

 private:
  struct Rule {
    std::string pattern;
    bool keep = false;  // "!": not ignored after all
  };
  bool ignored(const std::string& path) const;
  std::filesystem::path root_;
  std::vector<Rule> rules_;
};

// A whole file of this machine, or a folder (an OCI layout) as a tar.
Result<PackedFiles> pack_image(const std::filesystem::path& path);

}  // namespace space::cli
