// node's side of the warden: blocking calls over one SEQPACKET socket; use from a pool. Thread-safe (one call at a time).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "wire/refusals.h"

namespace space::wire {

// Of somebody's only VM where processors are short. What is made for nobody yet has a hundredth of it (warden/cgroup.h).
inline constexpr std::uint32_t kWholeCpuWeight = 1'000;

struct WardenInfo {
  std::string vmm_build;    // sha256 hex of the VMM binary with its libraries and firmware, kept by the warden
  std::string vmm_version;  // "7.2.22"
  std::string limits;       // "cgroup-v2", "cgroup-v1", "none"
  bool kvm = false;         // /dev/kvm works (a vCPU ran) and the processor has hardware virtualisation
};

struct VmLimits {
  std::uint64_t memory_bytes = 0;   // of the whole VMM process
  std::uint32_t cpu_percent = 100;  // of one core
  std::uint32_t tasks = 128;        // QEMU has up to 64 file workers beside vCPUs and a few of its own, and ends when one cannot start
  std::uint64_t file_bytes = 0;     // the largest file it may write, fixed at the start (RLIMIT_FSIZE); 0: 1 TiB
};

struct VmmProcess {
  Fd pidfd;
  pid_t pid = 0;  // in the host's PID namespace; for logs and /proc readings only, kill through pidfd
  // Of start_vmm: a socket on which the VMM's userfaultfd waits, for write tracking; empty where host or build cannot. It comes from
  // before the VMM's own code ran.
  Fd userfault = {};
};

// What the host shows of a VMM's memory (proc_pid_mem(5), proc_pid_pagemap(5), proc_pid_maps(5)), opened while it lived.
struct MemoryFiles {
  Fd memory;  // for reading and writing
  Fd pagemap;
  Fd maps;
};

struct VmListing {
  std::string vm;
  bool alive = false;
  pid_t pid = 0;
};

class WardenClient {
 public:
  static Result<std::unique_ptr<WardenClient>> connect(const std::string& socket_path);
  virtual ~WardenClient() = default;

  virtual Result<WardenInfo> hello() = 0;
  // The VM's network namespace with its TAP (IFF_TAP|IFF_NO_PI|IFF_VNET_HDR). Taken from a few kept ready.
  virtual Result<Fd> make_net(const std::string& vm) = 0;
  // The gateway's ends inside that namespace: [tcp 15001, udp 15053, tcp 15053], IPv4 and IPv6 on dual-stack sockets, non-blocking and
  // bound. The gateway calls listen(2) on the TCP ones when it is ready to accept: until then the guest gets a reset at once.
  virtual Result<std::vector<Fd>> egress_sockets(const std::string& vm) = 0;
  // `count` (1..8) unconnected, non-blocking TCP sockets made inside the namespace; node connects them to the guest.
  virtual Result<std::vector<Fd>> guest_sockets(const std::string& vm, int count) = 0;
  // Starts the VMM in its jail. `argv` without argv[0], at most 16 kB in all; `fds[i]` becomes descriptor 3+i there; stdout and
  // stderr go to `log` (a non-blocking pipe's end). `build` as of hello, or an older one that is kept.
  virtual Result<VmmProcess> start_vmm(const std::string& vm, const std::string& build, const VmLimits& limits,
                                       const std::vector<std::string>& argv, std::span<const int> fds, const Fd& log) = 0;
  virtual Result<VmmProcess> adopt(const std::string& vm) = 0;  // after a restart of node
  virtual Result<MemoryFiles> open_memory(const std::string& vm) = 0;
  // FS_IMMUTABLE_FL on a regular file of the caller's own uid; to freeze, `file` must be open for writing. `freeze_unsupported` where
  // the flag would not stop descriptors that are open already (tmpfs, for one).
  virtual Result<> freeze_file(const Fd& file, bool immutable) = 0;
  virtual Result<> set_limits(const std::string& vm, const VmLimits& limits) = 0;
  // Its share of the processor when VMs want more than there is, 1 to 10,000; a VM starts with 10 (warden/cgroup.h). Not a limit.
  virtual Result<> set_cpu_weight(const std::string& vm, std::uint32_t weight) = 0;
  // Does not wait for the VMM's end, which its pidfd shows; what the kernel takes apart then gives way to VMs that run. Idempotent.
  virtual Result<> kill(const std::string& vm) = 0;
  // Process, cgroup, namespace, pin: all of it; idempotent. It waits for a VMM that lives, and every other call behind it: kill first.
  virtual Result<> destroy(const std::string& vm) = 0;
  // What the rules of its namespace have refused so far.
  virtual Result<Refusals> refusals(const std::string& vm) = 0;
  virtual Result<std::vector<VmListing>> list() = 0;
};

}  // namespace space::wire
