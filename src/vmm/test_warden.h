// For tests alone: a warden without privileges to guard, in the test's own process. It starts QEMU without a jail, with the
// descriptors where the real one puts them, and a namespace with a TAP for each VM.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <map>
#include <mutex>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/file.h"
#include "wire/warden_client.h"

namespace space::vmm {

class TestWarden : public wire::WardenClient {
 public:
  explicit TestWarden(std::string program = "qemu-system-x86_64") : program_(std::move(program)) {}
  ~TestWarden() override {
    while (!vms_.empty()) (void)destroy(std::string(vms_.begin()->first));
  }

  Result<wire::WardenInfo> hello() override { return wire::WardenInfo{"unjailed", "7.2", "none", false}; }

  Result<Fd> make_net(const std::string& vm) override {
    if (::geteuid() != 0) return open_file("/dev/null", O_RDWR);  // enough for programs that only pretend to be a VMM
    Result<Fd> tap;
    Fd netns;
    std::thread([&] {
      tap = open_tap();
      if (auto ns = open_file("/proc/thread-self/ns/net", O_RDONLY)) netns = std::move(*ns);
    }).join();
    std::lock_guard lock(mutex_);
    vms_[vm].netns = std::move(netns);
    return tap;
  }

  Result<std::vector<Fd>> egress_sockets(const std::string&) override { return std::vector<Fd>{}; }

  Result<std::vector<Fd>> guest_sockets(const std::string& vm, int count) override {
    std::lock_guard lock(mutex_);
    std::vector<Fd> sockets;
    const int netns = vms_[vm].netns.get();
    std::thread([&] {
      if (::setns(netns, CLONE_NEWNET) != 0) return;
      for (int i = 0; i < count; ++i) sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    }).join();
    return sockets;
  }

  Result<wire::VmmProcess> start_vmm(const std::string& vm, const std::string&, const wire::VmLimits&, const std::vector<std::string>& argv,
                                     std::span<const int> fds, const Fd& log) override {
    std::vector<char*> words{const_cast<char*>(program_.c_str())};
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    last_argv = argv;
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno(errno, "fork");
    if (pid == 0) {
      ::dup2(log.get(), 2);
      ::dup2(log.get(), 1);
      std::vector<int> high;
      for (int fd : fds) high.push_back(::fcntl(fd, F_DUPFD, 200));
      for (std::size_t i = 0; i < high.size(); ++i) ::dup2(high[i], 3 + static_cast<int>(i));
      ::syscall(SYS_close_range, 3 + static_cast<int>(high.size()), ~0U, 0);
      ::execvp(words[0], words.data());
      ::_exit(127);
    }
    std::lock_guard lock(mutex_);
    vms_[vm].pid = pid;
    return adopt_locked(vm);
  }

  Result<wire::VmmProcess> adopt(const std::string& vm) override {
    std::lock_guard lock(mutex_);
    return adopt_locked(vm);
  }
  Result<wire::MemoryFiles> open_memory(const std::string& vm) override {
    std::lock_guard lock(mutex_);
    const std::string process = "/proc/" + std::to_string(vms_[vm].pid);
    wire::MemoryFiles files;
    TRY(files.memory, open_file(process + "/mem", O_RDWR));
    TRY(files.pagemap, open_file(process + "/pagemap", O_RDONLY));
    TRY(files.maps, open_file(process + "/maps", O_RDONLY));
    return files;
  }
  Result<> freeze_file(const Fd&, bool) override { return {}; }
  Result<> set_cpu_weight(const std::string&, std::uint32_t) override { return {}; }
  Result<> set_limits(const std::string&, const wire::VmLimits&) override { return {}; }

  Result<> kill(const std::string& vm) override {
    std::lock_guard lock(mutex_);
    if (auto it = vms_.find(vm); it != vms_.end() && it->second.pid > 0) ::kill(it->second.pid, SIGKILL);
    return {};
  }

  Result<> destroy(const std::string& vm) override {
    std::lock_guard lock(mutex_);
    auto it = vms_.find(vm);
    if (it == vms_.end()) return {};
    if (it->second.pid > 0) {
      ::kill(it->second.pid, SIGKILL);
      ::waitpid(it->second.pid, nullptr, 0);
    }
    vms_.erase(it);
    return {};
  }

  Result<wire::Refusals> refusals(const std::string&) override { return wire::Refusals{}; }

  Result<std::vector<wire::VmListing>> list() override {
    std::lock_guard lock(mutex_);
    std::vector<wire::VmListing> all;
    for (const auto& [id, entry] : vms_) all.push_back({id, entry.pid > 0, entry.pid});
    return all;
  }

  std::vector<std::string> last_argv;

 private:
  struct Entry {
    Fd netns;
    pid_t pid = 0;
  };

  Result<wire::VmmProcess> adopt_locked(const std::string& vm) {
    auto it = vms_.find(vm);
    if (it == vms_.end() || it->second.pid == 0) return fail(ErrorKind::not_found, "vm_not_found", "no such VM");
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, it->second.pid, 0)));
    if (!pidfd) return fail_errno(errno, "pidfd_open");
    return wire::VmmProcess{std::move(pidfd), it->second.pid};
  }

  // In a new namespace, which stays this thread's.
  static Result<Fd> open_tap() {
    if (::unshare(CLONE_NEWNET) != 0) return fail_errno(errno, "unshare");
    TRY(Fd tap, open_file("/dev/net/tun", O_RDWR | O_NONBLOCK));
    ifreq request{};
    std::strcpy(request.ifr_name, "tap0");
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) return fail_errno(errno, "TUNSETIFF");
    Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    request.ifr_hwaddr = {};
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    std::memcpy(request.ifr_hwaddr.sa_data, "\x02\x5a\xce\x00\x00\x01", 6);  // what guests know of the host's end
    if (::ioctl(tap.get(), SIOCSIFHWADDR, &request) != 0) return fail_errno(errno, "SIOCSIFHWADDR");
    const auto set_address = [&](unsigned long what, std::uint32_t address) {
      auto* in = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
      *in = {};
      in->sin_family = AF_INET;
      in->sin_addr.s_addr = htonl(address);
      return ::ioctl(socket.get(), what, &request) == 0;
    };
    if (!set_address(SIOCSIFADDR, 0x0a000001) || !set_address(SIOCSIFNETMASK, 0xfffffffc)) return fail_errno(errno, "address");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return fail_errno(errno, "up");
    return tap;
  }

  std::string program_;
  std::mutex mutex_;
  std::map<std::string, Entry> vms_;
};

}  // namespace space::vmm
