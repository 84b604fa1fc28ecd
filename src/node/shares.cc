#include "node/shares.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace space::node {

std::map<std::string, std::uint32_t> fair_weights(const RunningVms& running) {
  std::map<std::string, std::uint32_t> count;
  for (const auto& [vm, tenant] : running) ++count[tenant];
  std::map<std::string, std::uint32_t> weights;
  for (const auto& [vm, tenant] : running) weights[vm] = std::max(1U, wire::kWholeCpuWeight / std::bit_ceil(count[tenant]));
  return weights;
}

void FairShares::join(const std::string& vm, const std::string& tenant) {
  running_[vm] = tenant;
  const auto others = std::count_if(running_.begin(), running_.end(), [&](const auto& one) { return one.second == tenant; });
  const std::uint32_t weight = std::max(1U, wire::kWholeCpuWeight / std::bit_ceil(static_cast<std::uint32_t>(others)));
  if (std::exchange(told_[vm], weight) != weight) spawn(executor_, tell({{vm, weight}}));
  change();
}

void FairShares::leave(const std::string& vm) {
  if (running_.erase(vm) == 0) return;
  change();
}

void FairShares::change() {
  if (!std::exchange(settling_, true)) spawn(executor_, settle());
}

asio::awaitable<void> FairShares::settle() {
  co_await sleep_for(settle_);
  settling_ = false;
  std::erase_if(told_, [this](const auto& one) { return !running_.contains(one.first); });
  std::map<std::string, std::uint32_t> changed;
  for (const auto& [vm, weight] : fair_weights(running_))
    if (std::exchange(told_[vm], weight) != weight) changed[vm] = weight;
  if (!changed.empty()) co_await tell(std::move(changed));
}

asio::awaitable<void> FairShares::tell(std::map<std::string, std::uint32_t> changed) {
  auto work = [this, &changed]() -> Result<> {
    for (const auto& [vm, weight] : changed) tell_(vm, weight);
    return {};
  };
  (void)co_await pool_.run(std::move(work));
}

}  // namespace space::node
