#include "warden/warden.h"

#include <csignal>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "confine/landlock.h"
#include "warden/jail_filter.h"
#include "warden/kvm_probe.h"
#include "warden/privileges.h"
#include "warden/server.h"
#include "warden/service.h"

namespace space::warden {
namespace fs = std::filesystem;
namespace {

constexpr uid_t kNodeOffset = 2, kToolOffset = 999, kVmmOffset = 1000;
constexpr unsigned kMostReady = 64;

Result<Fd> stop_signal() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTERM);
  ::sigaddset(&stop, SIGINT);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  Fd fd(::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno(errno, "make a signalfd");
  return fd;
}

// One warden a run directory; the lock goes with the process.
Result<Fd> lock_state(const fs::path& folder) {
  TRY_VOID(make_directories(folder, 0700));
  TRY(Fd lock, open_file(folder / "lock", O_RDWR | O_CREAT));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorKind::conflict, "warden_running", "another warden uses " + folder.string(),
                "stop it, or choose another run directory");
  return lock;
}

Result<Host> look_at_host(const WardenConfig& config) {
  Host host;
  host.builds = fs::path(config.data_dir) / "vmm";
  TRY(host.build, prepare_build(config.vmm_binary, host.builds, config.uid_base + kToolOffset));
  host.kvm = kvm_works();
  if (config.without_filter) {
    log::warn("filter.off", {{"of", "VMMs"}, {"why", "--bench-without-filters: this server is for a measurement, not for use"}});
  } else {
    TRY(host.filter, jail_filter(host.kvm));
    host.landlock = confine::landlock_version();
    if (host.landlock == 0)
      log::warn("landlock.absent",
                {{"of", "VMMs"}, {"why", "this kernel has no Landlock, or one older than Linux 5.19: root, users and filter stand alone"}});
  }
  host.userfault = ::access("/dev/userfaultfd", R_OK | W_OK) == 0;  // Linux 6.1
  host.cgroups = Cgroups::detect();
  if (host.cgroups.kind() == "none" && !config.allow_no_limits)
    return fail(ErrorKind::unsupported, "no_limits", "this host has no cgroup controllers (memory, cpu, pids) for limits",
                "mount cgroup v2 or v1, or start with --no-limits");
  return host;
}

// Who may ask is decided by the peer's uid; the file's mode only keeps others from trying.
Result<Fd> open_door(const fs::path& path, const std::vector<uid_t>& peers) {
  TRY(Fd listener, listen_unix(path, SOCK_SEQPACKET, peers.size() == 1 ? 0660 : 0666));
  if (::chown(path.c_str(), 0, peers.front()) != 0) return fail_errno(errno, "chown the warden's socket");
  return listener;
}

Result<> serve(const WardenConfig& config) {
  if (::geteuid() != 0) return fail(ErrorKind::permission_denied, "not_root", "the warden needs root", "start it as root");
  const fs::path run = config.run_dir, state = run / "warden";
  TRY_VOID(make_directories(run, 0755));
  TRY(const Fd lock, lock_state(state));
  TRY(Fd stop, stop_signal());
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {  // a pidfd a VM, and what is in the stock
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  TRY(Host host, look_at_host(config));
  TRY_VOID(keep_needed_privileges());
  if (!config.without_filter) TRY_VOID(keep_needed_calls());
  TRY(UidSlots slots, UidSlots::claim(config.uid_base + kVmmOffset));
  VmTable vms(state);
  TRY_VOID(vms.load());
  log::info("warden.ready", {{"vmm_build", host.build.digest},
                             {"vmm_version", host.build.version},
                             {"limits", host.cgroups.kind()},
                             {"accelerator", host.kvm ? "kvm" : "tcg"},
                             {"first_uid", static_cast<std::int64_t>(slots.first())}});
  const std::vector<uid_t> peers = config.peer_uids.empty() ? std::vector<uid_t>{config.uid_base + kNodeOffset} : config.peer_uids;
  TRY(Fd listener, open_door(run / "warden.sock", peers));
  TRY(auto server, Server::make(std::move(listener), std::move(stop), peers));
  Service service(std::move(host), std::move(vms), std::move(slots), std::min(config.ready_namespaces, kMostReady),
                  [&server](const Fd& pidfd) { server->watch(pidfd); });
  auto result = server->run(service);
  ::unlink((run / "warden.sock").c_str());
  return result;
}

}  // namespace

int run(const WardenConfig& config) {
  const auto result = serve(config);
  if (result) return 0;
  log::error("warden.failed", {{"error", result.error()}});
  return 1;
}

}  // namespace space::warden
