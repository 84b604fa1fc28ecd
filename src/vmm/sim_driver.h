// No virtual machine: the agent as a child process in namespaces of its own (user, PID), with this process's uid. For load tests
// of the control plane only: it is chosen by name alone, says so once in the log and everywhere as accelerator "none", and isolates
// nothing. Its processes end with this one, so there is never anything to adopt.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/async.h"
#include "vmm/driver.h"

namespace space::vmm {

struct SimOptions {
  std::filesystem::path sockets;  // private folder for the agents' sockets; made when absent
  std::filesystem::path agent;    // the agent's program; "": space-agent beside this one
};

class SimDriver : public Driver {
 public:
  static Task<std::unique_ptr<SimDriver>> open(BlockingPool& pool, SimOptions options);

  std::string name() const override { return "sim"; }
  std::string accelerator() const override { return "none"; }
  std::string state_key() const override { return "sim 1"; }
  Task<std::unique_ptr<Vm>> spawn(VmSpec spec) override;
  Task<std::unique_ptr<Vm>> adopt(const std::string& id) override;
  Task<std::vector<std::string>> list() override;
  Task<> sweep(const std::string& id) override;
  Task<> merge_generations(DiskMerge merge) override;

 private:
  SimDriver(BlockingPool& pool, SimOptions options) : pool_(pool), options_(std::move(options)) {}
  BlockingPool& pool_;
  SimOptions options_;
};

}  // namespace space::vmm
