#include "vmm/qemu_arguments.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "wire/warden_client.h"

namespace space::vmm {
namespace {

constexpr std::size_t kMaxLayers = 24;
constexpr const char* kGuestMac = "02:5a:ce:00:00:02";
constexpr std::uint32_t kClockGrid = 2'000;  // kHz: a base and its host may differ by this, and the guest's clock with them
constexpr std::uint32_t kGuestHz = 250;      // CONFIG_HZ of Debian's kernel, for lpj

std::string cpu_of(const QemuMachine& machine) {
  if (!machine.cpu.empty()) return machine.cpu;
  // TCG runs `rep movsb` a byte at a time, and with `erms` kernel and libc copy with it: without, copies are six times as fast. `max`
  // has `svm` too: nested virtualisation, which no sandbox needs, and whose emulation is code that a guest's root could attack.
  return machine.kvm ? "Nehalem-v2" : "max,erms=off,svm=off";
}

std::string kernel_command_line(const QemuMachine& machine, std::uint32_t tsc_khz) {
  std::string line = "console=ttyS0 quiet reboot=t panic=-1 nowatchdog pci=off";
  if (machine.kvm) return line;
  // Nothing to calibrate the clocks with, so they are told. The watchdog of clocks would find the counter wrong as soon as the host
  // is busy, and the guest would go on with the tick as its clock. Translated code does not speculate as the kernel fears.
  line += fmt::format(" no_timer_check tsc=reliable tsc_early_khz={} lpj={}", tsc_khz, std::uint64_t{tsc_khz} * 1000 / kGuestHz);
  return line + " mitigations=off";
}

// All arguments that no VM changes. (The mmio bus 0 is not used: its interrupt, pin 0 of the second IOAPIC, does not arrive under
// TCG.)
std::vector<std::string> fixed_arguments(const QemuMachine& machine) {
  return {
      "-nodefaults",
      "-no-user-config",
      "-display",
      "none",
      "-S",
      "-M",
      "microvm,memory-backend=ram,x-option-roms=off,pit=off,pic=off,rtc=on,mem-merge=off,dump-guest-core=off",
      "-cpu",
      cpu_of(machine),
      "-global",
      "virtio-mmio.force-legacy=false",
      // A guest that switches off or resets stops here, so that its console can still be read; the driver ends it then.
      "-action",
      "reboot=shutdown,shutdown=pause,panic=pause",
      // QEMU aborts when it cannot start a thread: its pool stays well below the cgroup's limit of tasks.
      "-object",
      "main-loop,id=loop,thread-pool-max=8",
      "-object",
      "rng-builtin,id=rng",
      "-device",
      "virtio-rng-device,rng=rng,bus=virtio-mmio-bus.3",
      "-chardev",
      fmt::format("ringbuf,id=console,size={}", kConsoleBytes),
      "-serial",
      "chardev:console",
      "-mon",
      "chardev=control,mode=control",
      "-sandbox",
      "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
  };
}

class Builder {
 public:
  Builder(const VmSpec& spec, const QemuMachine& machine) : spec_(spec), machine_(machine) {}

  Result<QemuLaunch> build(Fd control, Fd tap) {
    launch_.argv = fixed_arguments(machine_);
    add("-name", fmt::format("{},debug-threads=on", spec_.id));
    add("-accel", machine_.kvm ? "kvm" : fmt::format("tcg,thread=multi,tb-size={}", machine_.translation_cache_mib));
    add("-m", fmt::format("{}M", spec_.size.memory_mib));
    add("-smp", fmt::format("{},maxcpus={}", spec_.size.cpus, spec_.size.cpus));
    TRY(const std::string memory, reopen(spec_.memory, O_RDWR));
    add("-object", fmt::format("memory-backend-file,id=ram,size={}M,mem-path={},share={},merge=off,dump=off", spec_.size.memory_mib, memory,
                               spec_.memory_shared ? "on" : "off"));
    TRY(const std::string kernel, reopen(spec_.images->kernel, O_RDONLY));
    TRY(const std::string initramfs, reopen(spec_.images->initramfs, O_RDONLY));
    add("-kernel", kernel);
    add("-initrd", initramfs);
    add("-append", kernel_command_line(machine_, machine_.tsc_khz));
    add("-chardev", fmt::format("socket,id=control,fd={},server=on,wait=off", pass(std::move(control))));
    TRY_VOID(disks());
    add("-netdev", fmt::format("tap,id=net,fd={},vhost=off", pass(std::move(tap))));
    add("-device", fmt::format("virtio-net-device,netdev=net,mac={},bus=virtio-mmio-bus.2", kGuestMac));
    if (spec_.begin != VmSpec::Begin::boot) add("-incoming", "defer");
    // What a running VM's devices are saved with has no such part.
    if (spec_.begin == VmSpec::Begin::load_devices) add("-global", "migration.send-configuration=off");
    return std::move(launch_);
  }

 private:
  void add(std::string_view option, std::string value) { launch_.add(option, std::move(value)); }

  int pass(Fd fd) { return launch_.pass(std::move(fd)); }

  // A new open file description: flags and offset of a shared one could be changed by one VMM for all others. The VMM opens
  // it a last time through its own /proc, which stands in the jail for exactly this.
  Result<Fd> open_anew(const Fd& fd, int flags) { return open_file(fmt::format("/proc/self/fd/{}", fd.get()), flags); }
  Result<std::string> reopen(const Fd& fd, int flags) {
    TRY(Fd own, open_anew(fd, flags));
    return fmt::format("/proc/self/fd/{}", pass(std::move(own)));
  }

  Result<> disks() {
    std::string below;
    for (std::size_t i = 0; i < spec_.disk.size(); ++i) {
      const DiskLayer& layer = spec_.disk[i];
      TRY(Fd file, open_anew(layer.file, layer.read_only ? O_RDONLY : O_RDWR));
      const std::string file_node = fmt::format("file{}", i), node = fmt::format("disk{}", i);
      add("-add-fd", fmt::format("fd={},set={}", pass(std::move(file)), i + 1));
      // Locks are off: node alone decides who opens what, and a lock would bind a base to one VM.
      const json::object protocol{{"driver", "file"},       {"filename", fmt::format("/dev/fdset/{}", i + 1)},
                                  {"node-name", file_node}, {"read-only", layer.read_only},
                                  {"locking", "off"},       {"discard", "unmap"}};
      json::object format{{"driver", layer.format == DiskLayer::Format::raw ? "raw" : "qcow2"},
                          {"node-name", node},
                          {"file", file_node},
                          {"read-only", layer.read_only},
                          {"discard", "unmap"}};
      if (layer.format == DiskLayer::Format::qcow2) {
        // Never the name that stands in the image: it was written by somebody else.
        format["backing"] = below.empty() ? json::value(nullptr) : json::value(below);
      }
      add("-blockdev", json::serialize(protocol));
      add("-blockdev", json::serialize(format));
      below = node;
    }
    add("-device", fmt::format("virtio-blk-device,drive={},bus=virtio-mmio-bus.1,num-queues=1,werror=report,rerror=report", below));
    return {};
  }

  const VmSpec& spec_;
  const QemuMachine& machine_;
  QemuLaunch launch_;
};

Result<> check(const VmSpec& spec) {
  const auto wrong = [](std::string_view what) { return fail(ErrorKind::invalid_argument, "invalid_vm_spec", std::string(what)); };
  if (!is_id(spec.id)) return wrong("the VM's id is not an id");
  if (spec.size.cpus < 1 || spec.size.cpus > 32) return wrong("a VM has 1 to 32 vCPUs");
  if (spec.size.memory_mib < 64 || spec.size.memory_mib > 64 * 1024) return wrong("a VM has 64 MiB to 64 GiB of memory");
  if (!spec.images || !spec.images->kernel || !spec.images->initramfs || !spec.memory)
    return wrong("kernel, initramfs or memory is missing");
  if (spec.memory_shared && spec.begin != VmSpec::Begin::boot) return wrong("shared memory is for booting");
  if (spec.disk.empty() || spec.disk.size() > kMaxLayers) return wrong("a VM has 1 to 24 disk layers");
  for (std::size_t i = 0; i < spec.disk.size(); ++i) {
    const bool top = i + 1 == spec.disk.size();
    if (!spec.disk[i].read_only && !top) return wrong("only the top disk layer may be writable");
    if (spec.disk[i].format == DiskLayer::Format::raw && i != 0) return wrong("a raw disk layer can only be the lowest");
  }
  return {};
}

}  // namespace

void QemuLaunch::add(std::string_view option, std::string value) {
  argv.emplace_back(option);
  argv.push_back(std::move(value));
}

int QemuLaunch::pass(Fd fd) {
  fds.push_back(std::move(fd));
  return kFirstPassedFd + static_cast<int>(fds.size()) - 1;
}

Result<QemuLaunch> qemu_launch(const VmSpec& spec, const QemuMachine& machine, Fd control, Fd tap) {
  TRY_VOID(check(spec));
  return Builder(spec, machine).build(std::move(control), std::move(tap));
}

std::string qemu_state_key(const QemuMachine& machine) {
  std::string all = fmt::format("qemu {}\n", machine.build);  // which has its version in it
  for (const std::string& argument : fixed_arguments(machine)) all += argument + "\n";
  all += kernel_command_line(machine, (machine.tsc_khz + kClockGrid / 2) / kClockGrid * kClockGrid);
  return digest_name(sha256(std::string_view(all)));
}

std::string kvm_cpu_model(std::string_view cpuinfo) {
  const auto has = [&](std::string_view flag) { return cpuinfo.find(fmt::format(" {} ", flag)) != std::string_view::npos; };
  if (cpuinfo.find("AuthenticAMD") != std::string_view::npos) return has("avx2") ? "EPYC-v3" : "Opteron_G3-v1";
  if (has("avx512f") && has("clwb")) return "Skylake-Server-v3";
  if (has("avx2") && has("fma")) return "Haswell-v4";
  return "Nehalem-v2";
}

}  // namespace space::vmm
