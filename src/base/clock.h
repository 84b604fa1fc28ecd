// Time comes in through constructors so that tests are exact.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace space {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t wall_ms() const = 0;       // milliseconds since the Unix epoch, UTC
  virtual std::int64_t monotonic_us() const = 0;  // microseconds, never goes back; for spans and limits
};

// The machine's own clock. Safe from any thread.
const Clock& system_clock();

// A clock that a test moves.
class ManualClock : public Clock {
 public:
  std::int64_t wall_ms() const override { return wall_ms_; }
  std::int64_t monotonic_us() const override { return monotonic_us_; }
  void advance(std::chrono::milliseconds by) {
    wall_ms_ += by.count();
    monotonic_us_ += by.count() * 1000;
  }

 private:
  std::int64_t wall_ms_ = 1'700'000'000'000;
  std::int64_t monotonic_us_ = 1'000'000;
};

std::string rfc3339(std::int64_t wall_ms);  // "2026-01-02T03:04:05.123Z"

}  // namespace space
