// Landlock (landlock(7)): what of the file system, of TCP and of other processes a process can still reach, whoever it is to the kernel.
// Descriptors that are open stay what they are. The kernel decides what it knows; what it does not know stays as it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"

namespace space::confine {

// Rights below a path. Numbers of the kernel's (linux/landlock.h), whose header may be older than the kernel.
enum Right : std::uint64_t {
  kExecute = 1 << 0,
  kWriteFile = 1 << 1,
  kReadFile = 1 << 2,
  kReadFolder = 1 << 3,
  kRemoveFolder = 1 << 4,
  kRemoveFile = 1 << 5,
  kMakeFolder = 1 << 7,
  kMakeFile = 1 << 8,
  kMakeSocket = 1 << 9,
  kRefer = 1 << 13,     // link and rename from one folder to another
  kTruncate = 1 << 14,  // since Linux 6.2
  kDevices = 1 << 15,   // ioctl on a device that is opened from now on; since Linux 6.10

  kRead = kReadFile | kReadFolder,
  kRun = kRead | kExecute,
  kReadWrite = kReadFile | kWriteFile | kTruncate,                                              // of one file
  kKeep = kRead | kReadWrite | kRemoveFolder | kRemoveFile | kMakeFolder | kMakeFile | kRefer,  // a folder of its own
};

// What stands beside paths.
enum class Tcp { none, connect, connect_and_bind };

struct Allowed {
  std::filesystem::path path;
  std::uint64_t rights = 0;  // of Right
  bool must_exist = true;    // else a path that is not there, or in a folder that is closed to us, is left out
};

// The kernel's version of Landlock, or 0 for none that is of use: version 1 cannot allow a rename between folders.
int landlock_version();

// Nothing but these, for this thread and all that it starts, for good; no signals to processes outside, and no abstract sockets of theirs
// (Linux 6.12). Does nothing, and says so in the log, where the kernel has no Landlock. Needs no_new_privs. Before threads are made.
Result<> enter_landlock(const std::vector<Allowed>& paths, Tcp tcp);

// The steps, each a bare system call: between clone(2) and execve(2) nothing may allocate. -1 and errno, as these say it.
int make_landlock(int version, Tcp tcp);                                     // a descriptor; close-on-exec
int allow_beneath(int landlock, int version, int fd, std::uint64_t rights);  // fd: of a folder, or of a file with the rights of files
int keep_landlock(int landlock);

}  // namespace space::confine
