// Who gets how much of the processors when there are not enough: each tenant's running sandboxes count as much together as any other
// tenant's, however many they are. Without that a tenant takes from the others by making more.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/async.h"
#include "wire/warden_client.h"

namespace space::node {

struct RunningVm {
  std::string vm, tenant;
};

// Weight of each VM, 1 to 100. The number of a tenant's VMs is taken up to a power of two, so that one more rarely changes all.
std::map<std::string, std::uint32_t> fair_weights(const std::vector<RunningVm>& running);

// Tells the warden what changed. For node's loop; the warden's calls run on the pool.
class FairShares {
 public:
  FairShares(wire::WardenClient& warden, BlockingPool& pool) : warden_(warden), pool_(pool) {}
  asio::awaitable<void> apply(std::vector<RunningVm> running);

 private:
  wire::WardenClient& warden_;
  BlockingPool& pool_;
  std::map<std::string, std::uint32_t> told_;
};

}  // namespace space::node
