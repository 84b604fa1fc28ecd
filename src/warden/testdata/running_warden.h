// A warden of a test's own: private folders, its own process, and everything it made taken away again whatever happens.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "warden/warden.h"
#include "wire/warden_client.h"

namespace space::warden {

// "name=value" lines of the probe.
using Lines = std::map<std::string, std::string>;

class RunningWarden {
 public:
  explicit RunningWarden(const std::string& vmm = SPACE_JAIL_PROBE, unsigned ready_namespaces = 1, bool without_filter = false);
  ~RunningWarden();

  void start();
  void kill();  // as a crash would
  int stop();   // as an operator would; its exit status
  wire::WardenClient& client() { return *client_; }
  pid_t pid() const { return pid_; }
  const WardenConfig& config() const { return config_; }
  std::filesystem::path socket() const { return folder_.path() / "run/warden.sock"; }

  std::string new_vm();  // an id that is cleaned up after
  // Starts the VMM program in a new VM without network.
  Result<wire::VmmProcess> launch(const std::string& vm, const std::vector<std::string>& argv,
                                  const wire::VmLimits& limits = {64ULL << 20, 100, 16, 0}, std::span<const int> fds = {});
  // What the VMM has written to its log until "end=", it ended, or ten seconds passed.
  Lines read_log(const wire::VmmProcess& process);
  std::string raw_log() const { return log_text_; }

  // Whatever is left of our VMs on this host: mounts, cgroups, folders, processes. Empty when all is well.
  std::vector<std::string> leftovers() const;

 private:
  TempDir folder_;
  WardenConfig config_;
  pid_t pid_ = 0;
  std::unique_ptr<wire::WardenClient> client_;
  std::set<std::string> vms_;
  std::set<pid_t> vmm_pids_;
  Fd log_;
  std::string log_text_;
};

}  // namespace space::warden
