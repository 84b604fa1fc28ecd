#include "cli/confinement.h"

#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "confine/calls.h"
#include "confine/filter.h"
#include "confine/landlock.h"

namespace space::cli {
namespace {

using confine::Allowed;
namespace fs = std::filesystem;

// Of every role: its own descriptors' limit, memory files and pages that are not swapped out (libsodium), and what `enclose` needs.
constexpr const char* kOfRoles[] = {"bind",
                                    "connect",
                                    "prlimit64",
                                    "setrlimit",
                                    "memfd_create",
                                    "mlock",
                                    "munlock",
                                    "signalfd4",
                                    "pipe",
                                    "pipe2",
                                    "dup2",
                                    "tgkill",
                                    "landlock_create_ruleset",
                                    "landlock_add_rule",
                                    "landlock_restrict_self"};
// Of a role that was started as root and gives that up.
constexpr const char* kOfRoot[] = {"setgroups", "setresuid", "setresgid"};
constexpr unsigned long kAtMark = 0x8905;  // SIOCATMARK (asm-generic/sockios.h)

bool is_confined(Role role, const ServerSettings& settings) {
  return role != Role::warden && !(role == Role::node && settings.driver == "sim");
}

Result<> load_filter(Role role) {
  confine::Filter filter;
  filter.allow_serving();
  filter.allow(kOfRoles);
  if (::geteuid() == 0) filter.allow(kOfRoot);
  filter.allow_madvise();
  filter.allow_prctl({PR_SET_PDEATHSIG, PR_CAPBSET_DROP});
  filter.allow_filters();
  if (role == Role::api) {
    filter.allow_threads();
    filter.allow_sockets({AF_UNIX, AF_INET, AF_INET6});
    filter.allow_ioctls({FIONBIO, FIONREAD, TCGETS, kAtMark});
  } else {  // node has qemu-img make a base's empty disk, egress starts its workers
    filter.allow(confine::kPrograms);
    filter.allow_processes();
    filter.allow_sockets(role == Role::node ? std::initializer_list<int>{AF_UNIX}
                                            : std::initializer_list<int>{AF_UNIX, AF_INET, AF_INET6, AF_NETLINK});
    filter.allow("ioctl");  // of node: userfaultfd, page tables, clones of files
  }
  filter.refuse(confine::kPrograms, EPERM);  // what is not allowed above
  filter.refuse(confine::kAttacks, EPERM);   // a role that ended would take every sandbox's connections with it
  return filter.load();
}

// An api that is root until it has its key and port; the others were started without (supervisor.cc).
Result<> empty_bounding_set() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return fail_errno(errno, "empty the bounding set");
  return {};
}

// A file that is replaced is another one to Landlock, so its folder is allowed: where its name stands, and where a link of that name leads.
void add_folders_of(const fs::path& file, std::vector<Allowed>& out) {
  if (file.empty()) return;
  std::error_code error;
  out.push_back({fs::absolute(file).parent_path(), confine::kRead, false});
  if (const fs::path real = fs::canonical(file, error); !error) out.push_back({real.parent_path(), confine::kRead, false});
}

// Programs with their libraries, and what those read at their start.
void add_programs(std::vector<Allowed>& out) {
  for (const char* folder : {"/usr", "/lib", "/lib64", "/bin"}) out.push_back({folder, confine::kRun, false});
  for (const char* file : {"/etc/ld.so.cache", "/etc/ld.so.preload"}) out.push_back({file, confine::kReadFile, false});
  out.push_back({"/proc/self/exe", confine::kReadFile | confine::kExecute});
}

std::vector<Allowed> paths_of(Role role, const ServerSettings& s) {
  std::vector<Allowed> out = {{"/dev/null", confine::kReadWrite},
                              {"/dev/urandom", confine::kReadFile},
                              {"/etc/ssl", confine::kRead, false},
                              {"/sys/devices/system", confine::kRead, false}};
#ifdef SPACE_SANITIZED
  out.push_back({"/proc", confine::kRead});
#endif
  switch (role) {
    case Role::warden:
      break;
    case Role::api:
      out.push_back({s.data_dir / "control", confine::kKeep});
      out.push_back({s.run_dir / "api", confine::kKeep, false});
      out.push_back({s.data_dir / "tls", confine::kRead, false});  // a domain's own certificate
      add_folders_of(s.tls_certificate, out);
      add_folders_of(s.tls_key, out);
      break;
    case Role::egress:
      add_programs(out);
      out.push_back({s.data_dir / "egress", confine::kKeep});
      out.push_back({s.run_dir / "egress", confine::kKeep | confine::kMakeSocket});
      for (const char* path : {"/etc/resolv.conf", "/etc/pki", "/etc/ca-certificates"}) out.push_back({path, confine::kRead, false});
      add_folders_of(s.egress_ca, out);
      break;
    case Role::node:
      add_programs(out);
      out.push_back({s.data_dir / "node", confine::kKeep});
      out.push_back({s.bases(), confine::kKeep});
      out.push_back({s.templates(), confine::kRead});
      out.push_back({s.run_dir / "node", confine::kKeep | confine::kMakeSocket});
      out.push_back({s.run_dir, confine::kMakeSocket | confine::kRemoveFile});  // node.sock
      out.push_back({"/proc", confine::kRead});                                 // how long and how large VMMs are
      add_folders_of(s.trust_file, out);
      break;
  }
  return out;
}

}  // namespace

Result<> confine(Role role, const ServerSettings& settings) {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return fail_errno(errno, "forbid core dumps");
  if (!is_confined(role, settings)) return {};
  for (const auto what : {RLIMIT_MSGQUEUE, RLIMIT_RTPRIO, RLIMIT_NICE})
    if (::setrlimit(what, &none) != 0) return fail_errno(errno, "set a limit");
  if (::geteuid() == 0) TRY_VOID(empty_bounding_set());
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "give up new privileges");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "become undumpable");
  if (settings.without_filters) {
    log::warn("filter.off", {{"of", to_string(role)}, {"why", "--bench-without-filters: this server is for a measurement, not for use"}});
    return {};
  }
  return load_filter(role);
}

Result<> enclose(Role role, const ServerSettings& settings) {
  if (!is_confined(role, settings) || settings.without_filters) return {};
  return confine::enter_landlock(paths_of(role, settings),
                                 role == Role::api ? confine::Tcp::none : confine::Tcp::connect);  // to guests, to the outside
}

}  // namespace space::cli
