// Limits of a VMM by control groups, version 2 or 1 (Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/), whichever this
// host has with the memory, cpu and pids controllers. One group a VM, named by its id, below a group `space`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "wire/warden_client.h"

namespace space::warden {

// Of a VMM from its program's start to its first word from node, and again once it is killed: what is made and what is taken apart
// waits for what runs, unless node says at once that somebody waits for it.
inline constexpr std::uint32_t kStartingWeight = 10, kMostWeight = 10'000;

// How a new process gets into its groups before it runs anything: by clone3's CLONE_INTO_CGROUP, and by writing "0" into each of
// `tasks` itself. (That moves a single thread by its own hand, which the kernel does without stopping the machine's other forks.)
struct CgroupEntry {
  Fd into;  // empty without version 2
  std::vector<Fd> tasks;
};

class Cgroups {
 public:
  // Looks at what is mounted, and makes `space` where it can. Never fails: a host without limits is `kind() == "none"`.
  static Cgroups detect(const std::filesystem::path& mountinfo = "/proc/self/mountinfo");

  std::string kind() const;  // "cgroup-v2", "cgroup-v1", "none"

  Result<CgroupEntry> make(const std::string& vm, const wire::VmLimits& limits) const;
  Result<> set(const std::string& vm, const wire::VmLimits& limits) const;
  // 1 to 10,000, as of version 2's cpu.weight. Without control groups there is none to set, which is no error.
  Result<> set_weight(const std::string& vm, std::uint32_t weight) const;
  // Idempotent. `conflict` while processes are in it.
  Result<> remove(const std::string& vm) const;

 private:
  struct Hierarchy {
    std::filesystem::path root;   // the mounted hierarchy's `space`
    std::string_view controller;  // "memory", "cpu", "pids"; "" of version 2
  };
  Result<> write_limits(const Hierarchy& hierarchy, const std::string& vm, const wire::VmLimits& limits) const;

  enum class Version { none, v1, v2 } version_ = Version::none;
  std::vector<Hierarchy> hierarchies_;         // where limits are set: three of v1, or one of v2
  std::vector<std::filesystem::path> others_;  // v1: groups of hierarchies without our controllers, only to leave the service's own
  std::filesystem::path unified_;              // v1 beside a v2 without controllers: likewise
};

}  // namespace space::warden
