// TCP connections to the agent of one VM, and to other ports of its guest. The sockets are made inside the sandbox's namespace by the
// warden, a few at a time and ahead of need, and connected from here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/fd.h"
#include "http/client.h"
#include "wire/agent_protocol.h"
#include "wire/warden_client.h"

namespace space::vmm {

class AgentSockets : public std::enable_shared_from_this<AgentSockets> {
 public:
  AgentSockets(std::shared_ptr<wire::WardenClient> warden, BlockingPool& pool, std::string vm)
      : warden_(std::move(warden)), pool_(pool), vm_(std::move(vm)) {}
  http::Connector connector(std::uint16_t port = wire::kAgentPort);  // holds this alive
  void stock(std::vector<Fd> sockets);                               // unconnected ones that were made already

 private:
  static Task<Fd> connect(std::shared_ptr<AgentSockets> self, std::uint16_t port);
  Task<Fd> take();

  std::shared_ptr<wire::WardenClient> warden_;
  BlockingPool& pool_;
  std::string vm_;
  std::vector<Fd> stock_;
};

}  // namespace space::vmm
