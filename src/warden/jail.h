// Starts a VMM in its jail: own uid without capabilities, private read-only root, own PID, IPC, UTS, mount, cgroup and (empty) network
// namespaces, its cgroup, limits, Landlock, seccomp, no environment, and exactly the descriptors it is given. docs/warden.md says why each.
#pragma once

#include <chrono>
#include <filesystem>
#include <linux/filter.h>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "warden/cgroup.h"

namespace space::warden {

inline constexpr const char* kVmmProgram = "/usr/bin/vmm";  // inside the root

struct JailSpec {
  std::filesystem::path root;     // a prepared build: kVmmProgram, its libraries, empty folders proc and dev
  uid_t uid = 0;                  // of this VM alone; the gid is the same number
  std::vector<std::string> argv;  // after argv[0]
  std::span<const Fd> fds;        // become 3, 4, …; stay the caller's
  const Fd* log = nullptr;        // becomes 1 and 2
  const CgroupEntry* cgroup = nullptr;
  std::span<const sock_filter> filter;  // empty: none (WardenConfig::without_filter)
  int landlock = 0;                     // the version to use (confine/landlock.h); 0: none
  bool kvm = false;                     // with a /dev/kvm
  // For the object that the build preloads (userfault_preload.c), or both null: its socket and /dev/userfaultfd.
  const Fd* userfault_socket = nullptr;
  const Fd* userfault_device = nullptr;
  std::uint64_t file_bytes = 0;  // RLIMIT_FSIZE, not 0
  std::uint32_t tasks = 0;       // RLIMIT_NPROC, not 0
};

// A process that stands in its cgroup and waits for the word to go on. It ends by itself when this object goes, or its maker dies,
// before that: so a VMM that nobody has on record cannot run.
class JailedProcess {
 public:
  static Result<JailedProcess> launch(const JailSpec& spec);
  // Lets it go on and waits until the program runs, or says at which step it failed (`jail_failed`). Milliseconds.
  Result<> release();

  pid_t pid() const { return pid_; }
  const Fd& pidfd() const { return pidfd_; }
  Fd take_pidfd() { return std::move(pidfd_); }

 private:
  pid_t pid_ = 0;
  Fd pidfd_, go_, status_;
};

// Its start in clock ticks since boot (field 22 of /proc/PID/stat): with the pid it names a process for good.
Result<std::uint64_t> process_start_time(pid_t pid);

// A pidfd for this pid, if it is still the process that started then; else `not_found`.
Result<Fd> open_process(pid_t pid, std::uint64_t start_time);

Result<> kill_process(const Fd& pidfd);                               // SIGKILL; one that has ended is success
bool wait_for_end(const Fd& pidfd, std::chrono::milliseconds limit);  // true when it has ended; does not reap

}  // namespace space::warden
