// What the warden does when it is asked (wire/warden_client.h says what each request means). Belongs to the warden's loop; each call
// takes milliseconds at most.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "net/stock.h"
#include "warden/cgroup.h"
#include "warden/jail.h"
#include "warden/uid_slots.h"
#include "warden/vm_table.h"
#include "warden/vmm_build.h"
#include "wire/warden_protocol.h"

namespace space::warden {

struct Host {
  std::filesystem::path builds;
  VmmBuild build;
  Cgroups cgroups;
  std::vector<sock_filter> filter;
  int landlock = 0;  // confine/landlock.h
  bool kvm = false;
  bool userfault = false;  // /dev/userfaultfd is there: VMMs can be tracked
};

struct Answer {
  wire::WardenReply reply;
  std::vector<Fd> fds;
};

class Service {
 public:
  // `watch` is called with the pidfd of every VMM that starts; `ended` must follow when it becomes readable.
  Service(Host host, VmTable vms, UidSlots slots, std::size_t ready_namespaces, std::function<void(const Fd&)> watch);

  // `busy`: a VM that is being destroyed has not ended yet; the same request is to be asked again after `ended`.
  enum class Progress { done, busy };
  Result<Progress> ask(const wire::WardenRequest& request, std::vector<Fd>& fds, uid_t peer, Answer& answer);

  void ended(int pidfd);

 private:
  Result<> make_net(const std::string& vm, Answer& answer);
  Result<> sockets(const wire::WardenRequest& request, Answer& answer);
  Result<> start(const wire::WardenRequest& request, std::vector<Fd>& fds, Answer& answer);
  Result<> launch(Vm& vm, const JailSpec& spec);
  Result<> adopt(const std::string& vm, Answer& answer);
  Result<> open_memory(const std::string& vm, Answer& answer);
  Result<> freeze(const wire::WardenRequest& request, const std::vector<Fd>& fds, uid_t peer);
  Result<> kill(const std::string& vm);
  Result<Progress> destroy(const std::string& vm);
  void list(const std::string& after, Answer& answer);
  Result<> refusals(const std::string& id, Answer& answer);
  Result<Vm*> living(const std::string& vm);  // `vm_unknown`, `vmm_ended`

  Host host_;
  VmTable vms_;
  UidSlots slots_;
  net::NetStock stock_;
  std::function<void(const Fd&)> watch_;
};

}  // namespace space::warden
