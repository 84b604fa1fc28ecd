// QEMU's command line for one VM, and the descriptors that it names by number. Each argument's reason stands in docs/vm.md.
// The jail has no file of ours: kernel, initramfs, memory, disks, TAP and the control socket all come as descriptors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "vmm/driver.h"

namespace space::vmm {

// What is the same for every VM of one driver. Everything here is part of state_key().
struct QemuMachine {
  std::string build;    // the warden's digest of the VMM and its firmware
  std::string version;  // "7.2.22"
  bool kvm = false;
  std::string cpu;                           // -cpu; "" for the default of the accelerator
  std::uint32_t tsc_khz = 0;                 // TCG only
  std::uint32_t translation_cache_mib = 64;  // TCG only, not part of the state
};

inline constexpr int kFirstPassedFd = 3;  // fds[i] becomes 3+i in the VMM, see wire::WardenClient::start_vmm
inline constexpr std::uint32_t kConsoleBytes = 16 << 10;

struct QemuLaunch {
  std::vector<std::string> argv;  // without argv[0]
  std::vector<Fd> fds;            // each an open file description of its own, so that no VMM can change another's flags

  void add(std::string_view option, std::string value);
  int pass(Fd fd);  // its number in the VMM
};

// `control`: a listening stream socket. `tap`: opened with IFF_VNET_HDR. Fails when a descriptor cannot be opened anew, or the
// specification breaks a rule of VmSpec. Blocks shortly: use from a pool.
Result<QemuLaunch> qemu_launch(const VmSpec& spec, const QemuMachine& machine, Fd control, Fd tap);

// The digest of all that a saved state depends on; the clock's rate counts to 2 MHz, so that a restart finds its bases again.
std::string qemu_state_key(const QemuMachine& machine);

// A CPU that the host offers and that other hosts offer too: never "host" or "max", which tie a saved state to one machine.
std::string kvm_cpu_model(std::string_view cpuinfo);

}  // namespace space::vmm
