#include "agent/figures.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace space::agent {
namespace {

// The number behind `name` in /proc/meminfo, in bytes.
std::optional<std::uint64_t> memory_value(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(fmt::format("{}:", name));
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size() + 1);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value << 10;
}

json::value or_null(const std::optional<std::uint64_t>& value, int shift = 0) {
  return value ? json::value(*value >> shift) : json::value();
}

json::value share(const std::optional<CpuTimes>& before, const std::optional<CpuTimes>& now) {
  if (!before || !now || now->total <= before->total || now->busy < before->busy) return {};
  const std::uint64_t hundredths = (now->busy - before->busy) * 10'000 / (now->total - before->total);
  return static_cast<double>(std::min<std::uint64_t>(hundredths, 10'000)) / 100;
}

}  // namespace

// user nice system idle iowait irq softirq steal
std::optional<CpuTimes> read_cpu_times(std::string_view text) {
  if (!text.starts_with("cpu ")) return std::nullopt;
  CpuTimes out;
  text = text.substr(4, text.find('\n') - 4);
  for (int column = 0; column < 8; ++column) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) break;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    out.total += value;
    if (column != 3 && column != 4) out.busy += value;
  }
  if (out.total == 0) return std::nullopt;
  return out;
}

bool is_fit(const std::optional<CpuMark>& before, std::chrono::steady_clock::time_point now) {
  return before && now - before->at >= kLeastShareTime && now - before->at <= kMostShareTime;
}

json::object figures(const Readings& readings) {
  std::optional<std::uint64_t> total, used, cached, size, taken;
  if (readings.memory) {
    total = memory_value(*readings.memory, "MemTotal");
    cached = memory_value(*readings.memory, "Cached");
    const auto available = memory_value(*readings.memory, "MemAvailable");
    if (total && available) used = *total - std::min(*total, *available);
  }
  if (readings.disk && readings.disk->f_blocks > 0) {  // a file system without any size does not tell it
    const struct statvfs& disk = *readings.disk;
    size = static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize;
    taken = *size - std::min(*size, static_cast<std::uint64_t>(disk.f_bfree) * disk.f_frsize);
  }
  return {{"cpu_count", readings.cpus > 0 ? json::value(readings.cpus) : json::value()},
          {"cpu_used_pct", share(readings.before, readings.now)},
          {"mem_total", or_null(total)},
          {"mem_used", or_null(used)},
          {"mem_cache", or_null(cached)},
          {"mem_total_mib", or_null(total, 20)},
          {"mem_used_mib", or_null(used, 20)},
          {"disk_used", or_null(taken)},
          {"disk_total", or_null(size)}};
}

}  // namespace space::agent
