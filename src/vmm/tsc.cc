#include "vmm/tsc.h"

#include <algorithm>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace space::vmm {

#if defined(__x86_64__)
namespace {

struct Reading {
  std::uint64_t ticks;
  std::int64_t ns;
};

// The tightest of some readings: an interrupt between the two clocks would show as a wide one.
Reading read_both() {
  Reading best{};
  std::uint64_t narrowest = UINT64_MAX;
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t before = __rdtsc();
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    const std::uint64_t after = __rdtsc();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {before + narrowest / 2, now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec};
  }
  return best;
}

}  // namespace

std::uint32_t measure_tsc_khz() {
  const Reading first = read_both();
  const timespec pause{0, 20'000'000};
  ::nanosleep(&pause, nullptr);
  const Reading second = read_both();
  const std::int64_t ns = std::max<std::int64_t>(second.ns - first.ns, 1);
  return static_cast<std::uint32_t>((second.ticks - first.ticks) * 1'000'000 / static_cast<std::uint64_t>(ns));
}
#else
std::uint32_t measure_tsc_khz() { return 0; }
#endif

}  // namespace space::vmm
