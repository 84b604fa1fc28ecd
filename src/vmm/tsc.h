// The rate of this machine's time-stamp counter. Under TCG the guest reads the host's counter and has nothing to calibrate it
// with (no PIT, no PM timer), so it is told on the kernel's command line.
#pragma once

#include <cstdint>

namespace space::vmm {

// In kHz, against CLOCK_MONOTONIC_RAW, which no time daemon slews. Blocks for 20 ms. /proc/cpuinfo's MHz is the current
// frequency of the core, not the counter's. 0 on a machine without such a counter.
std::uint32_t measure_tsc_khz();

}  // namespace space::vmm
