#include "confine/filter.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/file.h"
#include "confine/calls.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41  // Linux 5.17
#endif

namespace space::confine {
namespace {

// What glibc's pthread_create asks for, beside CLONE_VM, CLONE_SIGHAND and CLONE_THREAD.
constexpr scmp_datum_t kThread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
constexpr scmp_datum_t kOfThreads = CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID |
                                    CLONE_CHILD_CLEARTID | CLONE_DETACHED;
constexpr scmp_datum_t kNamespaces =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

constexpr int kPrctls[] = {PR_SET_NAME,     PR_GET_NAME,     PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_GET_SECCOMP,
                           PR_GET_DUMPABLE, PR_CAPBSET_READ, PR_SET_TIMERSLACK,   PR_GET_TIMERSLACK,   PR_SET_VMA};

constexpr int kAdvice[] = {MADV_NORMAL,     MADV_RANDOM,     MADV_SEQUENTIAL, MADV_WILLNEED,      MADV_DONTNEED,
                           MADV_FREE,       MADV_REMOVE,     MADV_DONTFORK,   MADV_DOFORK,        MADV_UNMERGEABLE,
                           MADV_HUGEPAGE,   MADV_NOHUGEPAGE, MADV_DONTDUMP,   MADV_DODUMP,        MADV_WIPEONFORK,
                           MADV_KEEPONFORK, MADV_COLD,       MADV_PAGEOUT,    MADV_POPULATE_READ, MADV_POPULATE_WRITE};

}  // namespace

Filter::Filter() : context_(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), seccomp_release) {
  if (!context_) {
    error_ = -ENOMEM;
    return;
  }
  // Calls of other architectures, the 32-bit ones of this kernel too, are nobody's.
  error_ = seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  if (error_ == 0) error_ = seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);  // a tree in place of a chain
}

void Filter::add(const char* name, std::uint32_t action, Conditions when) {
  const int number = seccomp_syscall_resolve_name(name);
  if (error_ != 0 || number == __NR_SCMP_ERROR || decided_.contains(number)) return;
  if (when.size() == 0) decided_.insert(number);
  error_ = seccomp_rule_add_array(context_.get(), action, number, static_cast<unsigned>(when.size()), when.begin());
}

void Filter::allow(Calls names) {
  for (const char* name : names) add(name, SCMP_ACT_ALLOW, {});
}

void Filter::allow(const char* name, Conditions when) { add(name, SCMP_ACT_ALLOW, when); }

void Filter::refuse(Calls names, int error) {
  for (const char* name : names) refuse(name, error);
}

void Filter::refuse(const char* name, int error, Conditions when) { add(name, SCMP_ACT_ERRNO(static_cast<std::uint32_t>(error)), when); }

void Filter::end_process(Calls names) {
  for (const char* name : names) add(name, SCMP_ACT_KILL_PROCESS, {});
}

void Filter::allow_threads() { allow("clone", {SCMP_A0_64(SCMP_CMP_MASKED_EQ, 0xffffffff & ~kOfThreads, kThread)}); }

void Filter::allow_processes() { allow("clone", {SCMP_A0_64(SCMP_CMP_MASKED_EQ, kNamespaces, 0)}); }

void Filter::allow_sockets(std::initializer_list<int> families) {
  for (const char* name : {"socket", "socketpair"})
    for (const int family : families) allow(name, {int_argument(0, static_cast<std::uint32_t>(family))});
}

void Filter::allow_serving() {
  allow(kOfSanitizers);
  allow(kOfEveryProgram);
  allow(kDescriptors);
  allow(kEventLoop);
  allow(kConnections);
  allow(kContents);
  allow(kOpening);
  allow(kNames);
}

void Filter::allow_prctl(std::initializer_list<int> more) {
  for (const int option : kPrctls) allow("prctl", {int_argument(0, static_cast<std::uint32_t>(option))});
  for (const int option : more) allow("prctl", {int_argument(0, static_cast<std::uint32_t>(option))});
  allow("prctl", {int_argument(0, PR_SET_DUMPABLE), SCMP_A1_64(SCMP_CMP_EQ, 0)});
}

void Filter::allow_madvise() {
  for (const int advice : kAdvice) allow("madvise", {int_argument(2, static_cast<std::uint32_t>(advice))});
}

void Filter::allow_signals_to(int pid) { allow("tgkill", {int_argument(0, static_cast<std::uint32_t>(pid))}); }

void Filter::allow_filters() { allow("seccomp", {SCMP_A1_64(SCMP_CMP_MASKED_EQ, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0)}); }

void Filter::allow_ioctls(std::initializer_list<unsigned long> requests) {
  for (const unsigned long request : requests) allow("ioctl", {int_argument(1, static_cast<std::uint32_t>(request))});
}

void Filter::allow_reading_limits() { allow("prlimit64", {int_argument(0, 0), SCMP_A2_64(SCMP_CMP_EQ, 0)}); }

Result<std::vector<sock_filter>> Filter::program() const {
  Fd file(::memfd_create("filter", MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "memfd_create");
  const int error = error_ != 0 ? error_ : seccomp_export_bpf(context_.get(), file.get());
  if (error != 0) return fail_errno(-error, "compile the filter of system calls");
  ::lseek(file.get(), 0, SEEK_SET);
  TRY(const std::string bytes, read_fd(file, 1 << 20));
  std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
  std::memcpy(program.data(), bytes.data(), program.size() * sizeof(sock_filter));
  return program;
}

Result<> Filter::load() const {
  const int error = error_ != 0 ? error_ : seccomp_load(context_.get());
  if (error != 0) return fail_errno(-error, "load the filter of system calls");
  return {};
}

}  // namespace space::confine
