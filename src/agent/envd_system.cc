// E2B's /health, /metrics and /envs.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <charconv>

#include "agent/entry.h"
#include "agent/envd.h"
#include "agent/routes.h"
#include "base/clock.h"
#include "base/file.h"

namespace space::agent {
namespace {

using EnvdPtr = std::shared_ptr<Envd>;

// The number behind `name` in /proc/meminfo, in bytes.
std::uint64_t memory_value(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(fmt::format("{}:", name));
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + name.size() + 1);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value << 10;
}

// The first line of /proc/stat (proc(5)): user nice system idle iowait irq softirq steal.
Envd::CpuTimes cpu_times(std::string_view text) {
  Envd::CpuTimes out;
  if (!text.starts_with("cpu ")) return out;
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
  return out;
}

Task<> get_metrics(EnvdPtr envd, http::Exchange& exchange) {
  CO_TRY(const std::string memory, read_file("/proc/meminfo", 64 << 10));
  CO_TRY(const std::string stat, read_file("/proc/stat", 1 << 20));
  const Envd::CpuTimes now = cpu_times(stat), before = envd->cpu.value_or(Envd::CpuTimes{});
  envd->cpu = now;
  const std::int64_t cpus = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  const double share =
      now.total > before.total ? 100.0 * static_cast<double>(now.busy - before.busy) / static_cast<double>(now.total - before.total) : 0.0;
  const std::uint64_t total = memory_value(memory, "MemTotal"), available = memory_value(memory, "MemAvailable"),
                      cached = memory_value(memory, "Cached");
  struct statvfs disk = {};
  (void)::statvfs("/", &disk);
  const std::uint64_t size = disk.f_blocks * disk.f_frsize, free = disk.f_bfree * disk.f_frsize;
  json::object body{{"ts", system_clock().wall_ms() / 1000},
                    {"cpu_count", cpus},
                    {"cpu_used_pct", static_cast<double>(static_cast<std::int64_t>(share * 100)) / 100},
                    {"mem_total", total},
                    {"mem_used", total - std::min(total, available)},
                    {"mem_cache", cached},
                    {"mem_total_mib", total >> 20},
                    {"mem_used_mib", (total - std::min(total, available)) >> 20},
                    {"disk_used", size - free},
                    {"disk_total", size}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> get_health(http::Exchange& exchange) {
  http::Response response;
  response.status = 204;
  co_return co_await exchange.reply(std::move(response));
}

// When processes started and how they ended, as far as they are kept. Their output is their readers'.
Task<> get_logs(EnvdPtr envd, http::Exchange& exchange) {
  constexpr std::size_t kShown = 300;  // bytes of a command line
  json::array entries;
  const auto add = [&](const Process& process, std::int64_t time_ms, std::string_view level, std::string message, std::optional<int> code) {
    const Command& command = process.command();
    const std::string line = fmt::format("{}", fmt::join(command.argv, " "));
    json::object entry{{"time_ms", time_ms}, {"level", level}, {"pid", std::to_string(process.pid())}, {"user", command.user.name}};
    put_bytes(entry, "message", fmt::format("{}: {}", message, std::string_view(line).substr(0, kShown)));
    if (code) entry["exit_code"] = std::to_string(*code);
    entries.push_back(std::move(entry));
  };
  const std::int64_t now = system_clock().wall_ms();
  for (const auto& process : envd->agent.processes.list()) {
    if (process->pid() == 0) continue;
    add(*process, process->started_ms(), "info", "process started", std::nullopt);
    const auto& exit = process->exit();
    if (!exit) continue;
    const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - process->ended_at()).count();
    if (exit->signal != 0)
      add(*process, now - ago, "warn", fmt::format("process ended by signal {}", exit->signal), std::nullopt);
    else
      add(*process, now - ago, exit->code == 0 ? "info" : "warn", fmt::format("process ended with status {}", exit->code), exit->code);
  }
  json::object body{{"entries", std::move(entries)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> get_envs(EnvdPtr envd, http::Exchange& exchange) {
  json::object body;
  for (const Environment* layer : {&envd->agent.settings.template_env, &envd->agent.settings.sandbox_env})
    for (const auto& [name, value] : *layer) body[name] = value;
  co_return co_await reply_json(exchange, 200, std::move(body));
}

}  // namespace

void add_envd_system_routes(http::Router& router, const EnvdPtr& envd) {
  router.add("GET", "/health", get_health);
  router.add("GET", "/metrics", [envd](http::Exchange& x) { return envd_plain(x, get_metrics(envd, x)); });
  router.add("GET", "/logs", [envd](http::Exchange& x) { return envd_plain(x, get_logs(envd, x)); });
  router.add("GET", "/envs", [envd](http::Exchange& x) { return envd_plain(x, get_envs(envd, x)); });
}

}  // namespace space::agent
