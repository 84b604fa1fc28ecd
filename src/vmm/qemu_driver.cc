#include "vmm/qemu_driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "vmm/qemu_disk.h"
#include "vmm/qemu_merge.h"
#include "vmm/tsc.h"

namespace space::vmm {
namespace {

// What QEMU itself needs beside the guest's memory: code, device state, thread stacks, page tables, qcow2 caches.
constexpr std::uint64_t kOverheadBytes = 160ull << 20;
// Of a process that merges generations: the same without a guest.
constexpr std::uint64_t kMergeBytes = 512ull << 20;

struct Started {
  wire::VmmProcess process;
  Fd log;
};

// An image that is full, with its own tables.
std::uint64_t largest_image(std::uint32_t disk_mib) {
  const std::uint64_t disk = std::uint64_t{disk_mib} << 20;
  return disk + disk / 8 + (64ull << 20);
}

wire::VmLimits limits_of(const VmSpec& spec, const QemuMachine& machine) {
  wire::VmLimits limits;
  // The guest's memory counts twice: its own pages, and those of the base's memfd that it is the first to read. Zero pages are
  // holes there, and the kernel fills one on behalf of whoever touches it, before it copies the page for a private map.
  limits.memory_bytes = (std::uint64_t{2 * spec.size.memory_mib} << 20) + kOverheadBytes;
  if (!machine.kvm) limits.memory_bytes += std::uint64_t{machine.translation_cache_mib} << 20;
  limits.file_bytes = largest_image(spec.size.disk_mib);
  limits.cpu_percent = spec.size.cpus * 100 + 50;  // half a core more for devices, or the guest's disk would slow its vCPU
  return limits;
}

Result<Started> launch(const QemuHost& host, const std::string& id, const std::string& build, const wire::VmLimits& limits,
                       const QemuLaunch& launch) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errno, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  std::vector<int> numbers;
  for (const Fd& fd : launch.fds) numbers.push_back(fd.get());
  TRY(wire::VmmProcess process, host.warden->start_vmm(id, build, limits, launch.argv, numbers, writer));
  return Started{std::move(process), std::move(reader)};
}

Result<Started> start(const QemuHost& host, const QemuMachine& machine, const VmSpec& spec) {
  TRY(Fd tap, host.warden->make_net(spec.id));
  TRY(Fd control, listen_unix(host.control_socket(spec.id), SOCK_STREAM, 0600, 4));
  TRY(const QemuLaunch words, qemu_launch(spec, machine, std::move(control), std::move(tap)));
  TRY(Started started, launch(host, spec.id, spec.vmm_build.empty() ? machine.build : spec.vmm_build, limits_of(spec, machine), words));
  if (!spec.ahead) (void)host.warden->set_cpu_weight(spec.id, wire::kWholeCpuWeight);  // an error is the next call's to find
  return started;
}

// No network: this one has nobody to talk to.
Result<Started> start_merge(const QemuHost& host, const QemuMachine& machine, const DiskMerge& merge) {
  TRY(Fd control, listen_unix(host.control_socket(merge.id), SOCK_STREAM, 0600, 4));
  TRY(const QemuLaunch words, qemu_merge_launch(merge, std::move(control)));
  wire::VmLimits limits;
  limits.memory_bytes = kMergeBytes;
  limits.file_bytes = largest_image(merge.disk_mib);
  return launch(host, merge.id, machine.build, limits, words);
}

// A node that was killed between the end of a VM and the end of its socket, or before a merge began, left a socket that no VM goes with.
Result<> remove_stray_sockets(const QemuHost& host) {
  TRY(const auto listing, host.warden->list());
  std::set<std::filesystem::path> owned;
  for (const auto& entry : listing) owned.insert(host.control_socket(entry.vm));
  TRY(const auto names, list_directory(host.sockets));
  for (const std::string& name : names)
    if (const auto path = host.sockets / name; path.extension() == ".qmp" && !owned.contains(path) && ::unlink(path.c_str()) != 0)
      return fail_errno(errno, "remove a control socket");
  return {};
}

}  // namespace

Task<std::unique_ptr<QemuDriver>> QemuDriver::open(std::shared_ptr<wire::WardenClient> warden, BlockingPool& pool, QemuOptions options) {
  QemuHost host{std::move(warden), &pool, options.sockets};
  auto look = [host, options]() -> Result<QemuMachine> {
    TRY_VOID(make_directories(host.sockets, 0700));
    TRY(const wire::WardenInfo info, host.warden->hello());
    TRY_VOID(remove_stray_sockets(host));
    QemuMachine machine;
    machine.build = info.vmm_build;
    machine.version = info.vmm_version;
    machine.kvm = info.kvm;
    machine.cpu = options.cpu;
    machine.translation_cache_mib = options.translation_cache_mib;
    if (info.kvm) {
      TRY(const std::string cpuinfo, read_file("/proc/cpuinfo", 16 << 20));
      if (machine.cpu.empty()) machine.cpu = kvm_cpu_model(cpuinfo);
    } else {
      machine.tsc_khz = measure_tsc_khz();
      if (machine.tsc_khz == 0)
        return fail(ErrorKind::unsupported, "no_tsc", "this machine has no time-stamp counter", "use an x86-64 host");
    }
    return machine;
  };
  CO_TRY(QemuMachine machine, co_await pool.run(look));
  log::info("vmm.driver", {{"driver", "qemu"},
                           {"version", machine.version},
                           {"accelerator", machine.kvm ? "kvm" : "tcg"},
                           {"tsc_khz", static_cast<std::int64_t>(machine.tsc_khz)}});
  co_return std::unique_ptr<QemuDriver>(new QemuDriver(std::move(host), std::move(machine)));
}

namespace {

asio::awaitable<void> remove_later(QemuHost host, std::string id) {
  for (auto pause = std::chrono::seconds(1);; pause = std::min(pause * 2, std::chrono::seconds(60))) {
    co_await sleep_for(pause);
    auto remove = [host, id] { return QemuVm::remove(host, id); };
    auto removed = co_await host.pool->run(remove);
    if (removed) co_return;
    log::warn("vmm.sweep_failed", {{"vm", id}, {"error", removed.error()}});
  }
}

// Of an attempt that failed. The warden may be away just now; nobody else knows this id, so it is asked until it has done it.
asio::awaitable<void> remove_remains(QemuHost host, std::string id) {
  if (!is_id(id)) co_return;
  auto remove = [host, id] { return QemuVm::remove(host, id); };
  if (auto removed = co_await host.pool->run(remove); !removed) space::spawn(co_await asio::this_coro::executor, remove_later(host, id));
}

}  // namespace

Task<std::unique_ptr<Vm>> QemuDriver::spawn(VmSpec given) {
  const QemuHost host = host_;
  auto spec = std::make_shared<VmSpec>(std::move(given));
  const QemuMachine machine = machine_;
  auto work = [host, machine, spec] { return start(host, machine, *spec); };  // named: GCC 12 destroys such temporaries twice
  auto started = co_await host.pool->run(work);
  Error error;
  if (started) {
    auto vm = co_await QemuVm::take(host, spec->id, std::move(started->process), std::move(started->log),
                                    spec->begin != VmSpec::Begin::boot, false);
    if (vm) co_return std::unique_ptr<Vm>(std::move(*vm));
    error = std::move(vm).error();
  } else {
    error = std::move(started).error();
  }
  log::warn("vmm.spawn_failed", {{"vm", spec->id}, {"error", error}});
  co_await remove_remains(host, spec->id);
  co_return fail(std::move(error));
}

Task<> QemuDriver::merge_generations(DiskMerge given) {
  const QemuHost host = host_;
  const QemuMachine machine = machine_;
  auto merge = std::make_shared<DiskMerge>(std::move(given));
  auto work = [host, machine, merge] { return start_merge(host, machine, *merge); };
  auto started = co_await host.pool->run(work);
  Result<> done;
  if (started) {
    auto process = co_await QemuVm::take(host, merge->id, std::move(started->process), std::move(started->log), false, false);
    if (process) {
      done = co_await qemu_merge((*process)->asking());
      if (done) done = co_await (*process)->close();
      if (auto gone = co_await (*process)->destroy(); done) done = std::move(gone);
    } else {
      done = fail(std::move(process).error());
    }
  } else {
    done = fail(std::move(started).error());
  }
  if (done) co_return done;
  log::warn("vmm.merge_failed", {{"vm", merge->id}, {"error", done.error()}});
  co_await remove_remains(host, merge->id);
  co_return done;
}

Task<std::unique_ptr<Vm>> QemuDriver::adopt(const std::string& id) {
  const QemuHost host = host_;
  const std::string vm_id = id;
  auto find = [host, vm_id] { return host.warden->adopt(vm_id); };
  CO_TRY(wire::VmmProcess process, co_await host.pool->run(find));
  Fd no_log;
  CO_TRY(auto vm, co_await QemuVm::take(host, vm_id, std::move(process), std::move(no_log), true, true));
  co_return std::unique_ptr<Vm>(std::move(vm));
}

Task<std::vector<std::string>> QemuDriver::list() {
  const QemuHost host = host_;
  auto ask = [host]() -> Result<std::vector<std::string>> {
    TRY(const auto listing, host.warden->list());
    std::vector<std::string> ids;
    for (const auto& entry : listing) ids.push_back(entry.vm);
    return ids;
  };
  co_return co_await host.pool->run(ask);
}

Task<> QemuDriver::sweep(const std::string& id) {
  const QemuHost host = host_;
  const std::string vm_id = id;
  auto remove = [host, vm_id] { return QemuVm::remove(host, vm_id); };
  co_return co_await host.pool->run(remove);
}

}  // namespace space::vmm
