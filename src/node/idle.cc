#include "node/idle.h"

#include <algorithm>
#include <cmath>

namespace space::node {

std::int64_t unused_ms(Instant last, Instant now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - last - kUnseen).count();
  return std::max<std::int64_t>(ms, 0);
}

void GuestWork::look(std::uint64_t ticks, std::uint64_t ticks_per_s, Instant now) {
  if (before_ && ticks >= before_->ticks && now > before_->at) {  // fewer: it is another VMM's
    const double most = std::chrono::duration<double>(now - before_->at).count() * static_cast<double>(ticks_per_s);
    // Rounded up: more than five percent is six.
    const double share = std::ceil(100.0 * static_cast<double>(ticks - before_->ticks) / most);
    const auto percent = static_cast<std::int64_t>(std::min(share, static_cast<double>(kHighest)));
    if (percent > 0) {
      while (!heights_.empty() && heights_.back().percent <= percent) heights_.pop_back();
      heights_.push_back({percent, now});
    }
  }
  before_ = Look{ticks, now};
}

bool Traffic::look(const Counters& counters, Instant now) {
  // One that was not looked at before may have moved just now.
  const bool passed = before_ && counters.bytes > before_->bytes;
  if (!before_ || passed || counters.connections > before_->connections) moved_ = now;
  before_ = counters;
  return passed || (counters.open > 0 && now - moved_ < kSilent);
}

}  // namespace space::node
