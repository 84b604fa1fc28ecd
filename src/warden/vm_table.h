// What the warden knows of each VM, kept in files of its own so that a warden started after a crash knows it again.
// <folder>/<vm>/net is the pinned namespace, <folder>/<vm>/vmm says which process and uid. No sync to the disk: after a power cut
// the processes are gone as well, and a record of another boot counts for nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace space::warden {

struct Vm {
  std::string id;
  uid_t uid = 0;                 // 0: none taken yet
  pid_t pid = 0;                 // 0: no VMM was started
  std::uint64_t start_time = 0;  // clock ticks since boot; with pid it names the process
  Fd pidfd;                      // while it lives
  bool ending = false;           // killed on request; when it has ended, the rest goes too
  bool alive() const { return static_cast<bool>(pidfd); }
};

// Belongs to the warden's loop.
class VmTable {
 public:
  explicit VmTable(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Result<> load();  // once: everything an earlier warden left; living processes get their pidfd
  std::map<std::string, Vm>& all() { return vms_; }
  Vm* find(const std::string& id);
  Result<Vm*> need(const std::string& id);  // `vm_unknown`
  Result<Vm*> make(const std::string& id);  // or the one that is there
  Result<> record(const Vm& vm) const;      // atomic against a kill -9
  Result<> erase(const std::string& id);    // folder and entry; the namespace must be unpinned. Idempotent
  std::filesystem::path pin(const std::string& id) const { return folder_ / id / "net"; }

 private:
  Result<Vm> read(const std::string& id) const;
  std::filesystem::path folder_;
  std::map<std::string, Vm> vms_;
};

}  // namespace space::warden
