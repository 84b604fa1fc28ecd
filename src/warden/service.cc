#include "warden/service.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "net/namespace.h"
#include "net/refusals.h"
#include "warden/privileges.h"
#include "warden/userfault_object.h"

namespace space::warden {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1ULL << 40;  // 1 TiB
constexpr std::uint32_t kMaxTasks = 4096, kMaxCpuPercent = 25'600;
constexpr std::uint64_t kLeastMemory = 16ULL << 20;

tl::unexpected<Error> bad_limits(std::string_view what) {
  return fail(ErrorKind::invalid_argument, "bad_limits", fmt::format("a VM's limits: {}", what));
}

Result<wire::VmLimits> limits_of(const wire::WardenRequest& r) {
  if (r.memory_bytes != 0 && r.memory_bytes < kLeastMemory) return bad_limits("memory of at least 16 MiB, or 0 for no limit");
  if (r.cpu_percent == 0 || r.cpu_percent > kMaxCpuPercent) return bad_limits(fmt::format("1 to {} percent of a core", kMaxCpuPercent));
  if (r.tasks == 0 || r.tasks > kMaxTasks) return bad_limits(fmt::format("1 to {} tasks", kMaxTasks));
  if (r.file_bytes > kMaxFileBytes) return bad_limits("files of at most 1 TiB");
  return wire::VmLimits{r.memory_bytes, r.cpu_percent, r.tasks, r.file_bytes == 0 ? kMaxFileBytes : r.file_bytes};
}

Result<> expect_fds(const std::vector<Fd>& fds, std::size_t least, std::size_t most) {
  if (fds.size() < least || fds.size() > most)
    return fail(ErrorKind::invalid_argument, "bad_warden_packet", fmt::format("{} descriptors came, {} were due", fds.size(), least));
  return {};
}

}  // namespace

Service::Service(Host host, VmTable vms, UidSlots slots, std::size_t ready_namespaces, std::function<void(const Fd&)> watch)
    : host_(std::move(host)), vms_(std::move(vms)), slots_(std::move(slots)), stock_(ready_namespaces), watch_(std::move(watch)) {
  for (auto& [id, vm] : vms_.all()) {
    if (vm.uid != 0) slots_.adopt(vm.uid);
    if (vm.alive()) watch_(vm.pidfd);
    log::info("warden.vm_found", {{"vm", id}, {"pid", vm.pid}, {"alive", vm.alive() ? "yes" : "no"}});
  }
}

Result<Service::Progress> Service::ask(const wire::WardenRequest& request, std::vector<Fd>& fds, uid_t peer, Answer& answer) {
  const std::string vm = wire::text_of(request.vm);
  using enum wire::WardenCall;
  const bool takes_fds = request.call == start_vmm || request.call == freeze_file;
  TRY_VOID(takes_fds ? expect_fds(fds, 1, request.call == start_vmm ? 1 + wire::kWardenMaxVmmFds : 1) : expect_fds(fds, 0, 0));
  Result<> result;
  switch (request.call) {
    case hello:
      wire::put_text(answer.reply.vmm_build, host_.build.digest);
      wire::put_text(answer.reply.vmm_version, host_.build.version);
      wire::put_text(answer.reply.limits, host_.cgroups.kind());
      answer.reply.kvm = host_.kvm ? 1 : 0;
      break;
    case make_net:
      result = Service::make_net(vm, answer);
      break;
    case egress_sockets:
    case guest_sockets:
      result = sockets(request, answer);
      break;
    case start_vmm:
      result = start(request, fds, answer);
      break;
    case adopt:
      result = Service::adopt(vm, answer);
      break;
    case open_memory:
      result = Service::open_memory(vm, answer);
      break;
    case freeze_file:
      result = freeze(request, fds, peer);
      break;
    case set_limits: {
      TRY(const wire::VmLimits limits, limits_of(request));
      TRY_VOID(living(vm));
      result = host_.cgroups.set(vm, limits);
      break;
    }
    case set_cpu_weight:
      TRY_VOID(living(vm));
      result = host_.cgroups.set_weight(vm, request.count);
      break;
    case kill_vmm:
      result = kill(vm);
      break;
    case destroy:
      return Service::destroy(vm);
    case list:
      Service::list(vm, answer);
      break;
    case refusals:
      result = Service::refusals(vm, answer);
      break;
  }
  if (!result) return fail(result.error());
  return Progress::done;
}

Result<> Service::make_net(const std::string& id, Answer& answer) {
  if (vms_.find(id))
    return fail(ErrorKind::conflict, "vm_exists", fmt::format("VM {} exists", id), "destroy it first, or choose another id");
  TRY(net::SandboxNet net, stock_.take());
  TRY_VOID(vms_.make(id));
  if (auto pinned = net::pin_namespace(net.net_namespace, vms_.pin(id)); !pinned) {
    (void)vms_.erase(id);
    return pinned;
  }
  answer.fds.push_back(std::move(net.tap));
  return {};
}

Result<> Service::sockets(const wire::WardenRequest& request, Answer& answer) {
  const std::string id = wire::text_of(request.vm);
  TRY_VOID(vms_.need(id));
  TRY(Fd inside, net::open_pinned(vms_.pin(id)));
  if (request.call == wire::WardenCall::egress_sockets) {
    TRY(answer.fds, net::egress_sockets(inside));
    return {};
  }
  if (request.count < 1 || request.count > wire::kWardenMaxGuestSockets)
    return fail(ErrorKind::invalid_argument, "bad_count", fmt::format("1 to {} sockets at a time", wire::kWardenMaxGuestSockets));
  TRY(answer.fds, net::guest_sockets(inside, static_cast<int>(request.count)));
  return {};
}

Result<> Service::start(const wire::WardenRequest& request, std::vector<Fd>& fds, Answer& answer) {
  TRY(const wire::VmLimits limits, limits_of(request));
  const std::string build = wire::text_of(request.build), id = wire::text_of(request.vm);
  JailSpec spec;
  spec.root = host_.build.root;
  if (!build.empty() && build != host_.build.digest) {
    TRY(spec.root, find_build(host_.builds, build));
  }
  TRY(Vm * vm, vms_.make(id));
  if (vm->pid != 0)
    return fail(ErrorKind::conflict, "vm_exists", fmt::format("VM {} has a VMM", id), "destroy it first, or choose another id");
  // On record before anything exists, so that a warden killed at any instant leaves nothing that its successor does not find.
  TRY(vm->uid, slots_.take());
  std::pair<Fd, Fd> userfault;  // node's end, and the one inside
  Fd device;
  auto started = [&]() -> Result<> {
    TRY_VOID(vms_.record(*vm));
    // Only to a build that closes it again before the VMM's own code runs.
    if (host_.userfault && ::access((spec.root / std::string_view(kUserfaultObject).substr(1)).c_str(), F_OK) == 0) {
      TRY(device, open_file("/dev/userfaultfd", O_RDWR));
      TRY(userfault, seqpacket_pair());
      spec.userfault_socket = &userfault.second;
      spec.userfault_device = &device;
    }
    TRY(const CgroupEntry cgroup, host_.cgroups.make(id, limits));
    spec.uid = vm->uid;
    spec.argv = wire::split_argv(request);
    spec.log = &fds[0];
    spec.fds = std::span(fds).subspan(1);
    spec.cgroup = &cgroup;
    spec.filter = host_.filter;
    spec.landlock = host_.landlock;
    spec.kvm = host_.kvm;
    spec.file_bytes = limits.file_bytes;
    spec.tasks = limits.tasks;
    return launch(*vm, spec);
  }();
  if (started) {
    TRY(Fd pidfd, open_process(vm->pid, vm->start_time));
    answer.fds.push_back(std::move(pidfd));
    if (userfault.first) answer.fds.push_back(std::move(userfault.first));
    answer.reply.pid = vm->pid;
    log::info("warden.vmm_started", {{"vm", id}, {"pid", vm->pid}, {"uid", static_cast<std::int64_t>(vm->uid)}});
    return {};
  }
  if (host_.cgroups.remove(id)) slots_.give_back(vm->uid);
  vm->uid = 0;
  vm->pid = 0;
  (void)vms_.record(*vm);
  return started;
}

Result<> Service::launch(Vm& vm, const JailSpec& spec) {
  TRY(JailedProcess process, JailedProcess::launch(spec));
  auto released = [&]() -> Result<> {
    vm.pid = process.pid();
    TRY(vm.start_time, process_start_time(vm.pid));
    TRY_VOID(vms_.record(vm));
    return process.release();
  }();
  if (released) {
    vm.pidfd = process.take_pidfd();
    watch_(vm.pidfd);
    // Only now: the warden waits for the jail, and everybody else for the warden.
    (void)host_.cgroups.set_weight(vm.id, kStartingWeight);
    return {};
  }
  (void)kill_process(process.pidfd());
  siginfo_t info{};
  (void)::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process.pidfd().get()), &info, WEXITED);
  return released;
}

void Service::ended(int pidfd) {
  for (auto& [id, vm] : vms_.all()) {
    if (vm.pidfd.get() != pidfd) continue;
    siginfo_t info{};
    // ECHILD for one that an earlier warden started: somebody else reaps it, and its exit status is not known.
    const bool ours = ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0;
    log::info("warden.vmm_ended", {{"vm", id},
                                   {"pid", vm.pid},
                                   {"how", !ours                        ? "unknown"
                                           : info.si_code == CLD_EXITED ? "exit"
                                                                        : "signal"},
                                   {"status", ours ? info.si_status : -1}});
    vm.pidfd.reset();
    if (!vm.ending) return;
    // Whoever asked may have gone meanwhile.
    if (auto gone = destroy(std::string(id)); !gone) log::error("warden.not_destroyed", {{"vm", id}, {"error", gone.error()}});
    return;
  }
}

Result<Vm*> Service::living(const std::string& id) {
  TRY(Vm * vm, vms_.need(id));
  if (!vm->alive()) return fail(ErrorKind::gone, "vmm_ended", fmt::format("VM {} has no running VMM", id), "destroy it");
  return vm;
}

Result<> Service::adopt(const std::string& id, Answer& answer) {
  TRY(Vm * vm, living(id));
  // One of its own, not a copy of ours: what is done to it (epoll, flags) then does not meet ours.
  TRY(Fd pidfd, open_process(vm->pid, vm->start_time));
  answer.fds.push_back(std::move(pidfd));
  answer.reply.pid = vm->pid;
  return {};
}

Result<> Service::open_memory(const std::string& id, Answer& answer) {
  TRY(Vm * vm, living(id));
  TRY(answer.fds, net::on_own_thread([pid = vm->pid]() -> Result<std::vector<Fd>> {
        TRY_VOID(lower_this_thread());
        std::vector<Fd> fds(3);
        TRY(fds[0], open_file(fmt::format("/proc/{}/mem", pid), O_RDWR));
        TRY(fds[1], open_file(fmt::format("/proc/{}/pagemap", pid), O_RDONLY));
        TRY(fds[2], open_file(fmt::format("/proc/{}/maps", pid), O_RDONLY));
        return fds;
      }));
  // They are of whoever had the pid when they were opened; if the VMM lives now, that was the VMM.
  if (!wait_for_end(vm->pidfd, std::chrono::milliseconds(0))) return {};
  answer.fds.clear();
  return fail(ErrorKind::gone, "vmm_ended", fmt::format("VM {} has just ended", id), "destroy it");
}

Result<> Service::freeze(const wire::WardenRequest& request, const std::vector<Fd>& fds, uid_t peer) {
  struct stat st = {};
  if (::fstat(fds[0].get(), &st) != 0) return fail_errno(errno, "fstat");
  // A descriptor may be of any file its holder could open; the flag is only for the holder's own.
  if (!S_ISREG(st.st_mode) || (peer != 0 && st.st_uid != peer))
    return fail(ErrorKind::permission_denied, "not_your_file", "only a regular file of the asking process's own user can be frozen");
  const int fd = fds[0].get();
  if (request.count != 0 && (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
    return fail(ErrorKind::invalid_argument, "bad_descriptor", "a file to freeze must be open for writing");
  auto set = [fd](bool immutable) {
    int flags = 0;
    if (::ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return false;
    flags = immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
    return ::ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
  };
  if (!set(request.count != 0)) {
    if (errno != ENOTTY && errno != EOPNOTSUPP) return fail_errno(errno, "set a file's flags");
  } else if (request.count == 0 || (::pwrite(fd, "", 0, 0) < 0 && errno == EPERM)) {
    return {};
  } else {
    // Some filesystems ask the flag only when a file is opened; a VMM's old descriptor would go on writing there.
    (void)set(false);
  }
  return fail(ErrorKind::unsupported, "freeze_unsupported", "this filesystem has no files that are immutable for open descriptors",
              "copy the file instead");
}

Result<> Service::kill(const std::string& id) {
  const Vm* vm = vms_.find(id);
  if (!vm || !vm->alive()) return {};
  // Its memory is taken apart in its own control group: beside what runs, not before it.
  (void)host_.cgroups.set_weight(id, kStartingWeight);
  return kill_process(vm->pidfd);
}

Result<Service::Progress> Service::destroy(const std::string& id) {
  Vm* vm = vms_.find(id);
  if (!vm) return Progress::done;
  if (vm->alive()) {
    TRY_VOID(kill_process(vm->pidfd));
    vm->ending = true;
    return Progress::busy;
  }
  TRY_VOID(host_.cgroups.remove(id));
  TRY_VOID(net::unpin_namespace(vms_.pin(id)));
  const uid_t uid = vm->uid;
  TRY_VOID(vms_.erase(id));
  // The VMM was the first process of its PID namespace and its cgroup is empty: nothing of this uid remains.
  if (uid != 0) slots_.give_back(uid);
  log::info("warden.vm_destroyed", {{"vm", id}});
  return Progress::done;
}

Result<> Service::refusals(const std::string& id, Answer& answer) {
  TRY_VOID(vms_.need(id));
  TRY(const Fd inside, net::open_pinned(vms_.pin(id)));
  TRY(const wire::Refusals counts, net::read_refusals(inside));
  for (std::size_t i = 0; i < counts.size(); ++i) answer.reply.refused[i] = counts[i];
  return {};
}

void Service::list(const std::string& after, Answer& answer) {
  wire::WardenReply& reply = answer.reply;
  for (auto it = vms_.all().upper_bound(after); it != vms_.all().end(); ++it) {
    if (reply.count == wire::kWardenListEntries) {
      reply.more = 1;
      return;
    }
    wire::WardenEntry& entry = reply.entries[reply.count++];
    wire::put_text(entry.vm, it->first);
    entry.pid = it->second.pid;
    entry.alive = it->second.alive() ? 1 : 0;
  }
}

}  // namespace space::warden
