// The real driver: QEMU's microvm machine, with KVM where it works and TCG elsewhere. VMMs are started, found and removed by the
// warden; this side holds their control sockets and speaks QMP. docs/vm.md explains the recipe.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/async.h"
#include "vmm/driver.h"
#include "vmm/qemu_arguments.h"
#include "vmm/qemu_vm.h"
#include "wire/warden_client.h"

namespace space::vmm {

struct QemuOptions {
  std::filesystem::path sockets;             // node's private folder; made when absent
  std::string cpu;                           // "": chosen, see qemu_arguments.h
  std::uint32_t translation_cache_mib = 64;  // of each VMM under TCG; see docs/vm.md for the figures
};

class QemuDriver : public Driver {
 public:
  // Asks the warden what this host can do, and takes away the control sockets that no VM of it goes with. `warden` and `pool` are used
  // as long as the driver or a VM of it lives.
  static Task<std::unique_ptr<QemuDriver>> open(std::shared_ptr<wire::WardenClient> warden, BlockingPool& pool, QemuOptions options);

  std::string name() const override { return "qemu"; }
  std::string accelerator() const override { return machine_.kvm ? "kvm" : "tcg"; }
  std::string state_key() const override { return qemu_state_key(machine_); }
  std::string state_key_of(const std::string& vmm_build) const override {
    QemuMachine earlier = machine_;
    earlier.build = vmm_build;
    return qemu_state_key(earlier);
  }
  Task<std::unique_ptr<Vm>> spawn(VmSpec spec) override;
  Task<std::unique_ptr<Vm>> adopt(const std::string& id) override;
  Task<std::vector<std::string>> list() override;
  Task<> sweep(const std::string& id) override;
  Task<> merge_generations(DiskMerge merge) override;
  const QemuMachine& machine() const { return machine_; }

 private:
  QemuDriver(QemuHost host, QemuMachine machine) : host_(std::move(host)), machine_(std::move(machine)) {}
  QemuHost host_;
  QemuMachine machine_;
};

}  // namespace space::vmm
