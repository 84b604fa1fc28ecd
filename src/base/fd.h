// Owners of kernel objects. Each closes exactly one thing, and only once; all are move-only.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <span>
#include <utility>

#include "base/result.h"

namespace space {

// One file descriptor. Empty (-1) after a move or release.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);
  Result<Fd> duplicate() const;  // close-on-exec

 private:
  int fd_ = -1;
};

// Of a folder's stream: std::unique_ptr<DIR, CloseFolder>.
struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// A mapping made by mmap; unmapped by the destructor.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // `length` bytes of `fd` from `offset` (a multiple of the page size). `writable` maps shared, else private read-only.
  static Result<Mapping> of(const Fd& fd, std::size_t length, std::size_t offset = 0, bool writable = false);
  std::span<std::byte> bytes() const { return data_; }

 private:
  std::span<std::byte> data_;
};

}  // namespace space
