#include "warden/jail_filter.h"

#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include <cerrno>

#include "confine/calls.h"
#include "confine/filter.h"

namespace space::warden {
namespace {

// Beside the groups, what it was seen to call (tests/system/test_measured_calls.py), and the same in the words of other libraries.
constexpr const char* kOfQemu[] = {"execve",  // its start, which this filter comes before; afterwards its own filter ends it for this call
                                   "tgkill",  // to itself: it is alone in its PID namespace
                                   "signalfd4",
                                   // its root, and its descriptors by their names in /proc
                                   "open", "openat", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs", "getdents64",
                                   // disks and saved states
                                   "pread64", "pwrite64", "preadv", "pwritev", "fsync", "fdatasync", "fallocate", "ftruncate", "fadvise64",
                                   "fstatfs",
                                   // its control socket
                                   "accept", "accept4", "listen", "getsockname", "getpeername", "getsockopt", "setsockopt", "shutdown",
                                   "sendmsg", "recvmsg", "sendto", "recvfrom"};

constexpr std::uint64_t kKvmRequests = 0xae00, kRequestType = 0xff00;  // ioctl(2): the type of KVM's numbers (linux/kvm.h, KVMIO)
constexpr unsigned long kNewUserfault = 0xaa00;                        // of /dev/userfaultfd, which is gone before QEMU's first instruction

}  // namespace

Result<std::vector<sock_filter>> jail_filter(bool kvm) {
  confine::Filter filter;
  filter.allow(confine::kOfEveryProgram);
  filter.allow(confine::kDescriptors);
  filter.allow(confine::kEventLoop);
  filter.allow(kOfQemu);
  filter.allow_threads();
  filter.allow_madvise();
  filter.allow_prctl({PR_MCE_KILL});  // KVM: a page of broken memory is the guest's
  filter.allow_filters();
  filter.allow_reading_limits();
  // It reads and writes its TAP and sets the form of its frames; who owns the interface, how long it lives and what filters it is the
  // warden's.
  filter.allow_ioctls({TUNGETIFF, TUNGETFEATURES, TUNSETOFFLOAD, TUNGETVNETHDRSZ, TUNSETVNETHDRSZ, TUNSETVNETLE, TUNSETVNETBE, TUNSETSNDBUF,
                       FIONBIO, FIONREAD, TCGETS, kNewUserfault});
  if (kvm) filter.allow("ioctl", {SCMP_A1_64(SCMP_CMP_MASKED_EQ, kRequestType, kKvmRequests)});
  filter.refuse("unlink", ENOENT);  // of its control socket, when it ends: that stands outside its root
  filter.end_process(confine::kAttacks);
  return filter.program();
}

}  // namespace space::warden
