#include "net/namespace.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"

namespace space::net {
namespace fs = std::filesystem;

Result<> enter_namespace(const Fd& net_namespace) {
  if (::setns(net_namespace.get(), CLONE_NEWNET) != 0) return fail_errno(errno, "enter a network namespace");
  return {};
}

Result<Fd> enter_new_namespace() {
  if (::unshare(CLONE_NEWNET) != 0) return fail_errno(errno, "make a network namespace");
  return open_file("/proc/thread-self/ns/net", O_RDONLY);
}

Result<> pin_namespace(const Fd& net_namespace, const fs::path& path) {
  TRY_VOID(open_file(path, O_RDONLY | O_CREAT | O_EXCL, 0));
  const std::string source = fmt::format("/proc/self/fd/{}", net_namespace.get());
  if (::mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return fail_errno(error, fmt::format("pin a network namespace at {}", path.string()));
  }
  return {};
}

Result<Fd> open_pinned(const fs::path& path) {
  TRY(Fd fd, open_file(path, O_RDONLY));
  struct statfs st = {};
  if (::fstatfs(fd.get(), &st) != 0) return fail_errno(errno, "fstatfs");
  if (st.f_type != NSFS_MAGIC)  // the file is there and the mount is not: a crash between the two, or a reboot
    return fail(ErrorKind::not_found, "no_namespace", fmt::format("no network namespace is pinned at {}", path.string()));
  return fd;
}

Result<> unpin_namespace(const fs::path& path) {
  // Not recursive on purpose: more than one mount there would be somebody else's.
  if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL && errno != ENOENT)
    return fail_errno(errno, fmt::format("unpin {}", path.string()));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, fmt::format("remove {}", path.string()));
  return {};
}

}  // namespace space::net
