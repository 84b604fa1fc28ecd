// Reading archives with libarchive: errors as values. Only for archives that this installation downloaded and verified itself.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::tmpl {

// While it lives, this thread's names are UTF-8, whatever the machine's locale: libarchive converts them by it, and a name that
// does not fit is an error. Stands in every function that reads names.
class Utf8Names {
 public:
  Utf8Names();
  ~Utf8Names();
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  locale_t ours_, before_;
};

class ArchiveReader {
 public:
  // A file with any format and compression that libarchive knows; with `raw`, one compressed stream without a format.
  static Result<ArchiveReader> open(const std::filesystem::path& path);
  static Result<ArchiveReader> open_bytes(std::string_view bytes, bool raw);  // `bytes` outlive the reader
  // An archive inside this one: the content of its current entry.
  Result<ArchiveReader> open_inner();

  // The next entry, or nullptr at the end. It belongs to the reader and lives until the next call.
  Result<archive_entry*> next();
  Result<std::string> content(std::size_t limit);  // of the current entry; longer: too_large
  // The content in pieces; holes come as zeros. Stops with the first error of `take`.
  Result<> each_piece(const std::function<Result<>(std::string_view)>& take);
  Result<std::string> at_most(std::size_t bytes);  // the beginning of the content; what follows may be no valid stream

 private:
  struct Free {
    void operator()(archive* a) const { archive_read_free(a); }
  };
  struct Source;  // what an inner archive reads from
  ArchiveReader(std::unique_ptr<archive, Free> archive, std::string name, std::unique_ptr<Source> source);
  tl::unexpected<Error> failure(std::string_view doing) const;

  std::string name_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<archive, Free> archive_;

 public:
  ArchiveReader(ArchiveReader&&) noexcept;
  ArchiveReader& operator=(ArchiveReader&&) noexcept;
  ~ArchiveReader();
};

}  // namespace space::tmpl
