#include "base/clock.h"

#include <ctime>
#include <fmt/format.h>

namespace space {
namespace {

class SystemClock : public Clock {
 public:
  std::int64_t wall_ms() const override { return read(CLOCK_REALTIME) / 1'000'000; }
  std::int64_t monotonic_us() const override { return read(CLOCK_MONOTONIC) / 1000; }

 private:
  static std::int64_t read(clockid_t id) {
    timespec t{};
    ::clock_gettime(id, &t);
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

std::string rfc3339(std::int64_t wall_ms) {
  std::int64_t seconds = wall_ms / 1000, rest = wall_ms % 1000;
  if (rest < 0) rest += 1000, --seconds;
  const std::time_t t = seconds;
  std::tm tm{};
  ::gmtime_r(&t, &tm);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                     tm.tm_sec, rest);
}

}  // namespace space
