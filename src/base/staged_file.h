// A file that is written durably in two steps: its content now, its name later. Blocks: call from a pool.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace space {

// The two halves of write_file_durable: a content that is on the disk already, beside `path`, and has yet to take its name. Without
// publish() nothing of it stays.
class StagedFile {
 public:
  static Result<StagedFile> write(std::filesystem::path path, std::string_view content, unsigned mode = 0600);
  StagedFile(StagedFile&& other) noexcept : path_(std::move(other.path_)), aside_(std::exchange(other.aside_, {})) {}
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();
  Result<> publish();  // once

 private:
  StagedFile(std::filesystem::path path, std::filesystem::path aside) : path_(std::move(path)), aside_(std::move(aside)) {}
  std::filesystem::path path_, aside_;
};

}  // namespace space
