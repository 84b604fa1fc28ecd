#include "agent/boot.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

namespace space::agent {
namespace {

constexpr int kDeviceWait_ms = 2'000;

Result<> mount_at(const char* type, const char* target, unsigned long flags, const char* options = nullptr) {
  ::mkdir(target, 0755);
  // devtmpfs may have been mounted by the kernel.
  if (::mount(type, target, type, flags, options) != 0 && errno != EBUSY)
    return fail_errno(errno, fmt::format("mount {} on {}", type, target));
  return {};
}

void warn_if(const Result<>& result, std::string_view step) {
  if (!result) log::warn("boot.step_failed", {{"step", step}, {"error", result.error()}});
}

Result<> insert_module(const std::string& path, const std::string& arguments) {
  TRY(const Fd fd, open_file(path, O_RDONLY));
  if (::syscall(SYS_finit_module, fd.get(), arguments.c_str(), 0) != 0 && errno != EEXIST)
    return fail_errno(errno, fmt::format("insert {}", path));
  return {};
}

// The disk appears when its driver has looked at it, which may be a moment after the driver was inserted.
void wait_for_device(const char* device) {
  struct stat st = {};
  for (int waited = 0; waited < kDeviceWait_ms && ::stat(device, &st) != 0; ++waited) ::usleep(1'000);
}

}  // namespace

Result<> write_setting(const char* path, const char* text) {
  const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, path);
  return write_all(fd, text);
}

Result<> mount_kernel_filesystems() {
  TRY_VOID(mount_at("devtmpfs", "/dev", MS_NOSUID, "mode=0755"));
  // Without a console node in the initramfs the kernel starts PID 1 with no descriptors at all.
  if (const int console = ::open("/dev/console", O_RDWR | O_NOCTTY); console >= 0) {
    for (int fd = 0; fd < 3; ++fd)
      if (fd != console) ::dup2(console, fd);
    if (console > 2) ::close(console);
  }
  TRY_VOID(mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  TRY_VOID(mount_at("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  return {};
}

Result<> insert_modules(const char* folder) {
  TRY(const std::string order, read_file(fmt::format("{}/order", folder), 64 << 10));
  for (std::string_view rest = order; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t space = line.find(' ');
    std::string name(line.substr(0, space));
    if (name.empty() || name[0] == '#') continue;
    if (!name.ends_with(".ko")) name += ".ko";
    const std::string path = fmt::format("{}/{}", folder, name);
    warn_if(insert_module(path, space == std::string_view::npos ? std::string() : std::string(line.substr(space + 1))), path);
    ::unlink(path.c_str());  // it is in the kernel now; the initramfs is memory
  }
  return {};
}

Result<> enter_root(const char* device) {
  wait_for_device(device);
  ::mkdir("/newroot", 0755);
  if (::mount(device, "/newroot", "ext4", MS_NOATIME, "") != 0) return fail_errno(errno, fmt::format("mount {}", device));
  for (const char* name : {"dev", "proc", "sys"}) {
    const std::string from = fmt::format("/{}", name), to = fmt::format("/newroot/{}", name);
    ::mkdir(to.c_str(), 0755);
    if (::mount(from.c_str(), to.c_str(), nullptr, MS_MOVE, nullptr) != 0) return fail_errno(errno, fmt::format("move {}", from));
  }
  // As switch_root(8) does. The initramfs cannot be unmounted; it stays below, with nothing in it but this program.
  if (::chdir("/newroot") != 0 || ::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || ::chroot(".") != 0 || ::chdir("/") != 0)
    return fail_errno(errno, "enter the root filesystem");
  return {};
}

void mount_rest() {
  warn_if(mount_at("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"), "devpts");
  warn_if(mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"), "shm");
  warn_if(mount_at("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755,size=20%"), "run");
  ::mkdir("/run/lock", 01777);
  ::chmod("/run/lock", 01777);
  for (const auto& [target, link] : {std::pair{"/proc/self/fd", "/dev/fd"},
                                     {"/proc/self/fd/0", "/dev/stdin"},
                                     {"/proc/self/fd/1", "/dev/stdout"},
                                     {"/proc/self/fd/2", "/dev/stderr"}})
    (void)!::symlink(target, link);
  // /tmp stays on the disk: it may grow large, and memory is what a sandbox has least of.
  ::mkdir("/tmp", 01777);
  ::chmod("/tmp", 01777);
  warn_if(mount_at("cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC), "cgroup2");
  ::mkdir("/sys/fs/cgroup/user", 0755);
  ::mkdir("/sys/fs/cgroup/agent", 0755);
  warn_if(write_setting("/sys/fs/cgroup/agent/cgroup.procs", "1"), "agent cgroup");
}

void write_network_files() {
  // It may be a link to what another init system would have made.
  ::unlink("/etc/resolv.conf.space");
  const auto written = [&]() -> Result<> {
    TRY(const Fd fd, open_file("/etc/resolv.conf.space", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
    TRY_VOID(write_all(fd, "nameserver 10.0.0.1\n"));
    if (::rename("/etc/resolv.conf.space", "/etc/resolv.conf") != 0) return fail_errno(errno, "rename");
    return {};
  }();
  warn_if(written, "resolv.conf");
}

void quiet_kernel() {
  // Each of these wakes an idle guest again and again; the values are seconds or hundredths of them.
  const std::pair<const char*, const char*> settings[] = {
      {"/proc/sys/vm/stat_interval", "120"},
      {"/proc/sys/vm/dirty_writeback_centisecs", "3000"},
      {"/proc/sys/vm/compaction_proactiveness", "0"},  // kcompactd looks twice a second otherwise
      {"/proc/sys/kernel/watchdog", "0"},
      // The neighbours are fixed; these tables are looked through every 5 and 15 s otherwise.
      {"/proc/sys/net/ipv4/neigh/default/interval_probe_time_ms", "3600000"},
      {"/proc/sys/net/ipv6/neigh/default/interval_probe_time_ms", "3600000"},
      {"/proc/sys/net/ipv4/neigh/default/base_reachable_time_ms", "3600000"},
      {"/proc/sys/net/ipv6/neigh/default/base_reachable_time_ms", "3600000"},
      {"/sys/kernel/mm/transparent_hugepage/enabled", "madvise"},  // huge pages make small writes cost 2 MiB of private memory
      {"/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "0"},
      {"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
      {"/proc/sys/kernel/panic_on_oops", "1"},
  };
  for (const auto& [path, text] : settings) warn_if(write_setting(path, text), path);
}

Result<> boot() {
  ::umask(0);
  TRY_VOID(mount_kernel_filesystems());
  warn_if(insert_modules("/modules"), "modules");
  TRY_VOID(enter_root("/dev/vda"));
  warn_if(grow_root("/dev/vda"), "grow");
  mount_rest();
  quiet_kernel();
  warn_if(bring_network_up(), "network");
  write_network_files();
  // The kernel takes users' processes first when memory runs out; without PID 1 there is no guest.
  warn_if(write_setting("/proc/self/oom_score_adj", "-1000"), "oom_score_adj");
  return {};
}

}  // namespace space::agent
