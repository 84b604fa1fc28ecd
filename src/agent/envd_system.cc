// E2B's /health, /metrics and /envs.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/entry.h"
#include "agent/envd.h"
#include "agent/figures.h"
#include "agent/routes.h"
#include "base/clock.h"
#include "base/file.h"

namespace space::agent {
namespace {

using EnvdPtr = std::shared_ptr<Envd>;

std::optional<CpuTimes> cpu_times() {
  const auto text = read_file("/proc/stat", 1 << 20);
  return text ? read_cpu_times(*text) : std::nullopt;
}

// Of one question after the other the CPU share is that of the time between them; else of a moment that is waited for here.
Task<> get_metrics(EnvdPtr envd, http::Exchange& exchange) {
  using Clock = std::chrono::steady_clock;
  Readings readings;
  if (is_fit(envd->cpu, Clock::now())) {
    readings.before = envd->cpu->times;
  } else if ((readings.before = cpu_times())) {
    envd->cpu = CpuMark{*readings.before, Clock::now()};
    asio::steady_timer timer(envd->agent.executor, kLeastShareTime);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  readings.now = cpu_times();
  if (readings.now) envd->cpu = CpuMark{*readings.now, Clock::now()};
  readings.cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (auto memory = read_file("/proc/meminfo", 64 << 10)) readings.memory = std::move(*memory);
  struct statvfs disk = {};
  if (::statvfs("/", &disk) == 0) readings.disk = disk;
  json::object body = figures(readings);
  body["ts"] = system_clock().wall_ms() / 1000;
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
