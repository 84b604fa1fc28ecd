#include "vmm/qemu_driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "vmm/tsc.h"

namespace space::vmm {
namespace {

// What QEMU itself needs beside the guest's memory: code, device state, thread stacks, page tables, qcow2 caches.
constexpr std::uint64_t kOverheadBytes = 160ull << 20;

struct Started {
  wire::VmmProcess process;
  Fd log;
};

wire::VmLimits limits_of(const VmSpec& spec, const QemuMachine& machine) {
  wire::VmLimits limits;
  // The guest's memory counts twice: its own pages, and those of the base's memfd that it is the first to read. Zero pages are
  // holes there, and the kernel fills one on behalf of whoever touches it, before it copies the page for a private map.
  limits.memory_bytes = (std::uint64_t{2 * spec.size.memory_mib} << 20) + kOverheadBytes;
  if (!machine.kvm) limits.memory_bytes += std::uint64_t{machine.translation_cache_mib} << 20;
  const std::uint64_t disk = std::uint64_t{spec.size.disk_mib} << 20;
  limits.file_bytes = disk + disk / 8 + (64ull << 20);  // an image that is full, with its own tables
  limits.cpu_percent = spec.size.cpus * 100 + 50;  // half a core more for devices, or the guest's disk would slow its vCPU
  return limits;
}

Result<Started> start(const QemuHost& host, const QemuMachine& machine, const VmSpec& spec) {
  TRY(Fd tap, host.warden->make_net(spec.id));
  TRY(Fd control, listen_unix(host.control_socket(spec.id), SOCK_STREAM, 0600, 4));
  TRY(QemuLaunch launch, qemu_launch(spec, machine, std::move(control), std::move(tap)));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errno, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  std::vector<int> numbers;
  for (const Fd& fd : launch.fds) numbers.push_back(fd.get());
  const std::string& build = spec.vmm_build.empty() ? machine.build : spec.vmm_build;
  TRY(wire::VmmProcess process, host.warden->start_vmm(spec.id, build, limits_of(spec, machine), launch.argv, numbers, writer));
  return Started{std::move(process), std::move(reader)};
}

}  // namespace

Task<std::unique_ptr<QemuDriver>> QemuDriver::open(std::shared_ptr<wire::WardenClient> warden, BlockingPool& pool, QemuOptions options) {
  QemuHost host{std::move(warden), &pool, options.sockets};
  auto look = [host, options]() -> Result<QemuMachine> {
    TRY_VOID(make_directories(host.sockets, 0700));
    TRY(const wire::WardenInfo info, host.warden->hello());
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
      if (machine.tsc_khz == 0) return fail(ErrorKind::unsupported, "no_tsc", "this machine has no time-stamp counter", "use an x86-64 host");
    }
    return machine;
  };
  CO_TRY(QemuMachine machine, co_await pool.run(look));
  log::info("vmm.driver", {{"driver", "qemu"}, {"version", machine.version}, {"accelerator", machine.kvm ? "kvm" : "tcg"}, {"tsc_khz", static_cast<std::int64_t>(machine.tsc_khz)}});
  co_return std::unique_ptr<QemuDriver>(new QemuDriver(std::move(host), std::move(machine)));
}

Task<std::unique_ptr<Vm>> QemuDriver::spawn(VmSpec given) {
  const QemuHost host = host_;
  auto spec = std::make_shared<VmSpec>(std::move(given));
  const QemuMachine machine = machine_;
  auto work = [host, machine, spec] { return start(host, machine, *spec); };  // named: GCC 12 destroys such temporaries twice
  auto started = co_await host.pool->run(work);
  Error error;
  if (started) {
    auto vm = co_await QemuVm::take(host, spec->id, std::move(started->process), std::move(started->log), spec->begin != VmSpec::Begin::boot, false);
    if (vm) co_return std::unique_ptr<Vm>(std::move(*vm));
    error = std::move(vm).error();
  } else {
    error = std::move(started).error();
  }
  log::warn("vmm.spawn_failed", {{"vm", spec->id}, {"error", error}});
  if (is_id(spec->id)) {
    auto cleaned = co_await sweep(spec->id);
    if (!cleaned) log::error("vmm.sweep_failed", {{"vm", spec->id}, {"error", cleaned.error()}});
  }
  co_return fail(std::move(error));
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
