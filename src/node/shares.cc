#include "node/shares.h"

#include <algorithm>
#include <bit>

namespace space::node {

std::map<std::string, std::uint32_t> fair_weights(const std::vector<RunningVm>& running) {
  constexpr std::uint32_t kWhole = 100;
  std::map<std::string, std::uint32_t> count;
  for (const RunningVm& one : running) ++count[one.tenant];
  std::map<std::string, std::uint32_t> weights;
  for (const RunningVm& one : running) weights[one.vm] = std::max(1U, kWhole / std::bit_ceil(count[one.tenant]));
  return weights;
}

asio::awaitable<void> FairShares::apply(std::vector<RunningVm> running) {
  const auto wanted = fair_weights(running);
  std::vector<std::pair<std::string, std::uint32_t>> changed;
  for (const auto& [vm, weight] : wanted) {
    const auto told = told_.find(vm);
    if (told == told_.end() || told->second != weight) changed.emplace_back(vm, weight);
  }
  std::erase_if(told_, [&wanted](const auto& told) { return !wanted.contains(told.first); });
  if (changed.empty()) co_return;
  auto tell = [this, &changed]() -> Result<> {
    // One that ended meanwhile is the next look's business.
    for (const auto& [vm, weight] : changed) (void)warden_.set_cpu_weight(vm, weight);
    return {};
  };
  (void)co_await pool_.run(std::move(tell));
  for (auto& [vm, weight] : changed) told_[vm] = weight;
}

}  // namespace space::node
