#include "warden/kvm_probe.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/kvm.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

namespace space::warden {
namespace {

// A page of guest memory with one instruction in real mode.
bool ran_halt() {
  constexpr std::size_t kPage = 4096;
  constexpr unsigned char kHlt = 0xf4;
  const int kvm = ::open("/dev/kvm", O_RDWR | O_CLOEXEC);
  if (kvm < 0 || ::ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION) return false;
  const int vm = ::ioctl(kvm, KVM_CREATE_VM, 0);
  void* memory = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (vm < 0 || memory == MAP_FAILED) return false;
  std::memset(memory, kHlt, kPage);
  kvm_userspace_memory_region region{};
  region.guest_phys_addr = kPage;
  region.memory_size = kPage;
  region.userspace_addr = reinterpret_cast<std::uint64_t>(memory);
  if (::ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) != 0) return false;
  const int vcpu = ::ioctl(vm, KVM_CREATE_VCPU, 0);
  const int size = ::ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
  if (vcpu < 0 || size < static_cast<int>(sizeof(kvm_run))) return false;
  auto* run = static_cast<kvm_run*>(::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0));
  kvm_sregs special{};
  if (run == MAP_FAILED || ::ioctl(vcpu, KVM_GET_SREGS, &special) != 0) return false;
  special.cs.base = 0;
  special.cs.selector = 0;
  kvm_regs registers{};
  registers.rip = kPage;
  registers.rflags = 2;
  if (::ioctl(vcpu, KVM_SET_SREGS, &special) != 0 || ::ioctl(vcpu, KVM_SET_REGS, &registers) != 0) return false;
  return ::ioctl(vcpu, KVM_RUN, 0) == 0 && run->exit_reason == KVM_EXIT_HLT;
}

}  // namespace

bool kvm_works() {
  const std::string processor = read_file("/proc/cpuinfo", 16 << 20).value_or("");
  if (processor.find(" vmx") == std::string::npos && processor.find(" svm") == std::string::npos) return false;
  // In a process of its own: a vCPU that hangs is ended by the alarm's default action.
  const pid_t pid = ::fork();
  if (pid < 0) return false;
  if (pid == 0) {
    ::alarm(1);
    ::_exit(ran_halt() ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace space::warden
