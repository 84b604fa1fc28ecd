// A filter of system calls (seccomp(2)) that is a list of what passes.
//
// What stands nowhere in it answers ENOSYS: libraries take that for an older kernel and go another way, so that a library of tomorrow does
// not end a healthy process. What only an attacker calls can be made to end the process.
#pragma once

#include <linux/filter.h>
#include <seccomp.h>

#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::confine {

using Calls = std::span<const char* const>;
using Conditions = std::initializer_list<scmp_arg_cmp>;  // all of them, and each argument once (seccomp_rule_add(3))

// The argument as the kernel reads it where it is an int: what stands in its upper half says nothing and hides nothing.
inline scmp_arg_cmp int_argument(unsigned number, std::uint32_t value) { return {number, SCMP_CMP_MASKED_EQ, 0xffffffff, value}; }

// Put together by one thread. Of two words on the same call without conditions the first counts; conditions of one call are alternatives.
// The first error is kept and comes out at the end.
class Filter {
 public:
  Filter();
  void allow(Calls names);
  void allow(const char* name, Conditions when = {});
  void refuse(Calls names, int error);  // errno
  void refuse(const char* name, int error, Conditions when = {});
  void end_process(Calls names);  // SIGSYS to all of it; the kernel's log names the call (seccomp(2), SECCOMP_RET_KILL_PROCESS)

  void allow_serving();  // the groups that every role calls: of every program, and of those with an event loop, connections and files of
                         // their own
  // Threads of this process, and nothing else that clone(2) makes. clone3 takes its flags from memory, where no filter can look.
  void allow_threads();
  void allow_processes();  // threads and processes, in no namespace but those of their maker
  // socket and socketpair of these families.
  void allow_sockets(std::initializer_list<int> families);
  // The options of prctl(2) that a process needs for its names, for filters on top of this one, and to give things up; not to become
  // dumpable, nor to have its memory merged with others'.
  void allow_prctl(std::initializer_list<int> more = {});
  void allow_madvise();            // every advice of user space but MADV_MERGEABLE
  void allow_signals_to(int pid);  // its threads: tgkill(2), with which libc's abort and pthread_kill work
  // seccomp(2), for filters on top; not to hand calls to a listener.
  void allow_filters();
  void allow_ioctls(std::initializer_list<unsigned long> requests);
  void allow_reading_limits();  // prlimit(2) of itself without new ones

  Result<std::vector<sock_filter>> program() const;
  // For this thread and all that it starts, for good. Needs no_new_privs or CAP_SYS_ADMIN.
  Result<> load() const;

 private:
  void add(const char* name, std::uint32_t action, Conditions when);

  std::unique_ptr<void, decltype(&seccomp_release)> context_;
  std::set<int> decided_;  // calls with a word that has no conditions
  int error_ = 0;
};

}  // namespace space::confine
