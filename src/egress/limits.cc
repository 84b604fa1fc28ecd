#include "egress/limits.h"

#include <algorithm>

namespace space::egress {

void Bucket::fill(Time now) {
  const double capacity = static_cast<double>(rate_);
  if (filled_ == Time{})
    level_ = capacity;
  else
    level_ = std::min(capacity, level_ + std::chrono::duration<double>(now - filled_).count() * capacity);
  filled_ = now;
}

std::chrono::milliseconds Bucket::take(std::uint64_t amount, Time now) {
  if (rate_ == 0) return {};
  fill(now);
  level_ -= static_cast<double>(amount);
  if (level_ >= 0) return {};
  return std::chrono::milliseconds(static_cast<std::int64_t>(-level_ * 1000 / static_cast<double>(rate_)) + 1);
}

bool Bucket::try_take(std::uint64_t amount, Time now) {
  if (rate_ == 0) return true;
  fill(now);
  if (level_ < static_cast<double>(amount)) return false;
  level_ -= static_cast<double>(amount);
  return true;
}

void Budget::set(const Limits& limits) {
  limits_ = limits;
  bytes_.set_rate(limits.bytes_per_second);
  requests_.set_rate(limits.requests_per_second);
}

std::optional<std::chrono::milliseconds> Budget::charge(std::uint64_t bytes) {
  total_ += bytes;
  if (used_up()) return std::nullopt;
  if (limits_.bytes_per_second == 0) return std::chrono::milliseconds(0);
  // In steps, so that a raised limit is felt soon.
  return std::min(bytes_.take(bytes, std::chrono::steady_clock::now()), std::chrono::milliseconds(1000));
}

bool Budget::request() { return requests_.try_take(1, std::chrono::steady_clock::now()); }

}  // namespace space::egress
