#include "node/privileges.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace space::node {

Result<> become(uid_t uid, const std::vector<std::filesystem::path>& folders) {
  if (uid == 0 || ::geteuid() != 0) return {};
  const auto gid = static_cast<gid_t>(uid);
  for (const auto& folder : folders)
    if (::chown(folder.c_str(), uid, gid) != 0) return fail_errno(errno, fmt::format("hand over {}", folder.string()));
  if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 || ::setresuid(uid, uid, uid) != 0)
    return fail_errno(errno, "drop privileges");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "set no_new_privs");
  return {};
}

}  // namespace space::node
