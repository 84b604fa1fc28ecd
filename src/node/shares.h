// Who gets how much of the processors when there are not enough: each tenant's running sandboxes count as much together as any other
// tenant's, however many they are. Without that a tenant takes from the others by making more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/async.h"
#include "wire/warden_client.h"

namespace space::node {

using RunningVms = std::map<std::string, std::string>;  // tenant by VM

// Weight of each VM, 1 to wire::kWholeCpuWeight. The number of a tenant's VMs is taken up to a power of two, so that one more rarely
// changes all.
std::map<std::string, std::uint32_t> fair_weights(const RunningVms& running);

// Knows what runs and what the warden was told of it. For node's loop, which it outlives.
class FairShares {
 public:
  using Tell = std::function<void(const std::string& vm, std::uint32_t weight)>;  // called on the pool
  FairShares(asio::any_io_executor executor, BlockingPool& pool, Tell tell,
             std::chrono::milliseconds settle = std::chrono::milliseconds(500))
      : executor_(std::move(executor)), pool_(pool), tell_(std::move(tell)), settle_(settle) {}

  // `vm` runs from now on, for `tenant`. It is told its weight at once, unless that is what it still has from a moment ago (a checkpoint's
  // pause); its tenant's others are told theirs after a moment, together with whatever else comes and goes until then.
  void join(const std::string& vm, const std::string& tenant);
  void leave(const std::string& vm);

 private:
  void change();
  asio::awaitable<void> settle();
  asio::awaitable<void> tell(std::map<std::string, std::uint32_t> changed);

  asio::any_io_executor executor_;
  BlockingPool& pool_;
  Tell tell_;
  std::chrono::milliseconds settle_;
  RunningVms running_;
  std::map<std::string, std::uint32_t> told_;  // also of those that left since the last look
  bool settling_ = false;
};

}  // namespace space::node
