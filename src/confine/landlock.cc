#include "confine/landlock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/log.h"

namespace space::confine {
namespace {

constexpr std::uint64_t kOfFiles = kExecute | kReadWrite | kDevices;
constexpr std::uint64_t kBind = 1, kConnect = 2;             // LANDLOCK_ACCESS_NET_*, since version 4
constexpr std::uint64_t kAbstractSockets = 1, kSignals = 2;  // LANDLOCK_SCOPE_*, since version 6

// struct landlock_ruleset_attr and landlock_path_beneath_attr; the kernel takes a longer one whose end is zero.
struct Ruleset {
  std::uint64_t files, network, scope;
};
struct __attribute__((packed)) Beneath {
  std::uint64_t rights;
  std::int32_t parent;
};

std::uint64_t known_rights(int version) {
  std::uint64_t all = (1ULL << 14) - 1;
  if (version >= 3) all |= kTruncate;
  if (version >= 5) all |= kDevices;
  return all;
}

int version_of_kernel() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
  return version < 2 ? 0 : static_cast<int>(version);
}

Result<> allow(int landlock, int version, const Allowed& one) {
  const Fd fd(::open(one.path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd && !one.must_exist && (errno == ENOENT || errno == EACCES || errno == ENOTDIR)) return {};
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, fmt::format("open {} to allow it", one.path.string()));
  if (allow_beneath(landlock, version, fd.get(), S_ISDIR(st.st_mode) ? one.rights : one.rights & kOfFiles) != 0)
    return fail_errno(errno, fmt::format("allow {}", one.path.string()));
  return {};
}

}  // namespace

int landlock_version() {
  static const int version = version_of_kernel();
  return version;
}

int make_landlock(int version, Tcp tcp) {
  Ruleset rules{known_rights(version), 0, 0};
  if (version >= 4) rules.network = tcp == Tcp::none ? kBind | kConnect : tcp == Tcp::connect ? kBind : 0;
  if (version >= 6) rules.scope = kAbstractSockets | kSignals;
  return static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0));
}

int allow_beneath(int landlock, int version, int fd, std::uint64_t rights) {
  const Beneath rule{rights & known_rights(version), fd};
  return static_cast<int>(::syscall(SYS_landlock_add_rule, landlock, 1 /* LANDLOCK_RULE_PATH_BENEATH */, &rule, 0));
}

int keep_landlock(int landlock) { return static_cast<int>(::syscall(SYS_landlock_restrict_self, landlock, 0)); }

Result<> enter_landlock(const std::vector<Allowed>& paths, Tcp tcp) {
  const int version = landlock_version();
  if (version == 0) {
    log::warn("landlock.absent", {{"why", "this kernel has no Landlock, or one older than Linux 5.19: users and filters stand alone"}});
    return {};
  }
  const Fd landlock(make_landlock(version, tcp));
  if (!landlock) return fail_errno(errno, "make a Landlock ruleset");
  for (const Allowed& one : paths) TRY_VOID(allow(landlock.get(), version, one));
  if (keep_landlock(landlock.get()) != 0) return fail_errno(errno, "enter Landlock");
  return {};
}

}  // namespace space::confine
