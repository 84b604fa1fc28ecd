#include "agent/impersonation.h"

#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace space::agent {
namespace {

constexpr long kSame = -1;

// Back to root: the saved uid is still 0. A thread that cannot return would serve others with wrong rights.
void leave() {
  if (::syscall(SYS_setresuid, kSame, 0, kSame) != 0 || ::syscall(SYS_setresgid, kSame, 0, kSame) != 0 ||
      ::syscall(SYS_setgroups, 0, nullptr) != 0)
    std::abort();
}

}  // namespace

Result<Impersonation> Impersonation::enter(const Identity& identity) {
  const auto own = static_cast<uid_t>(::syscall(SYS_geteuid));
  if (own != 0) {
    if (own == identity.uid) return Impersonation(false);
    return fail(ErrorKind::permission_denied, "cannot_switch_user",
                fmt::format("the agent runs as uid {} and cannot act as uid {}", own, identity.uid));
  }
  if (identity.uid == 0) return Impersonation(false);
  if (::syscall(SYS_setgroups, identity.groups.size(), identity.groups.data()) != 0) return fail_errno(errno, "setgroups");
  if (::syscall(SYS_setresgid, kSame, identity.gid, kSame) != 0 || ::syscall(SYS_setresuid, kSame, identity.uid, kSame) != 0) {
    const int error = errno;
    leave();
    return fail_errno(error, "switch to the user");
  }
  return Impersonation(true);
}

Impersonation::~Impersonation() {
  if (active_) leave();
}

}  // namespace space::agent
