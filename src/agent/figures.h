// What the guest says of its use of processors, memory and disk, for E2B's /metrics. What cannot be told is null, never 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/statvfs.h>

#include "base/json.h"

namespace space::agent {

struct CpuTimes {  // ticks since boot, of all processors together
  std::uint64_t busy = 0, total = 0;
};
// The first line of /proc/stat (proc(5)); absent when it is not one.
std::optional<CpuTimes> read_cpu_times(std::string_view stat);

struct CpuMark {  // what was read, and when
  CpuTimes times;
  std::chrono::steady_clock::time_point at;
};
// A share is that of the time since `before`: too short a time has too few ticks, too long a one says nothing of now.
inline constexpr std::chrono::milliseconds kLeastShareTime{500}, kMostShareTime{10'000};
bool is_fit(const std::optional<CpuMark>& before, std::chrono::steady_clock::time_point now);

struct Readings {
  std::optional<std::string> memory;    // /proc/meminfo
  std::optional<CpuTimes> before, now;  // the two ends of the time that the CPU share is of
  std::optional<struct statvfs> disk;   // of the root
  std::int64_t cpus = 0;                // 0: not known
};
// The fields of E2B's /metrics but "ts": bytes, per cent of all processors together with two decimals.
json::object figures(const Readings& readings);

}  // namespace space::agent
