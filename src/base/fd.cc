#include "base/fd.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace space {

void Fd::reset(int fd) {
  // close() is never repeated on EINTR: on Linux the descriptor is gone either way.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<Fd> Fd::duplicate() const {
  int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail_errno(errno, "duplicate a descriptor");
  return Fd(copy);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

Mapping::~Mapping() {
  if (!data_.empty()) ::munmap(data_.data(), data_.size());
}

Result<Mapping> Mapping::of(const Fd& fd, std::size_t length, std::size_t offset, bool writable) {
  Mapping mapping;
  if (length == 0) return mapping;
  void* at = ::mmap(nullptr, length, writable ? PROT_READ | PROT_WRITE : PROT_READ, writable ? MAP_SHARED : MAP_PRIVATE, fd.get(),
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) return fail_errno(errno, "mmap");
  mapping.data_ = {static_cast<std::byte*>(at), length};
  return mapping;
}

}  // namespace space
