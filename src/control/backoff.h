// When to ask again for what nobody asked for and what did not come about, as a suspend that the store has no room for: after ten seconds,
// then after twice as long each time, at most every ten minutes. Of one loop; one entry for each thing that is still wanted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"

namespace space::control {

class Backoff {
 public:
  static constexpr std::int64_t kFirstUs = 10'000'000, kLongestUs = 600'000'000;

  explicit Backoff(const Clock& clock) : clock_(clock) {}  // which outlives it

  // Whether it is time for `what`. If so it counts as tried now, whatever comes of it.
  bool begin(const std::string& what) {
    const std::int64_t now = clock_.monotonic_us();
    const auto [entry, fresh] = tried_.try_emplace(what);
    Tried& tried = entry->second;
    if (!fresh && now - tried.at_us < tried.pause_us) return false;
    tried.pause_us = fresh ? kFirstUs : std::min(tried.pause_us * 2, kLongestUs);
    tried.at_us = now;
    return true;
  }
  // It was not even begun: the next time is the first.
  void forget(const std::string& what) { tried_.erase(what); }
  // Whatever else there was came about, is gone, or is not wanted any more.
  void keep_only(const std::unordered_set<std::string>& wanted) {
    std::erase_if(tried_, [&](const auto& entry) { return !wanted.contains(entry.first); });
  }
  std::size_t size() const { return tried_.size(); }

 private:
  struct Tried {
    std::int64_t at_us = 0, pause_us = 0;  // monotonic
  };
  const Clock& clock_;
  std::unordered_map<std::string, Tried> tried_;
};

}  // namespace space::control
