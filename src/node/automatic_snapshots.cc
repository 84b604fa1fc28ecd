#include "node/automatic_snapshots.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"

namespace space::node {
namespace {

using Clock = std::chrono::steady_clock;

asio::awaitable<void> take_one(Sandboxes& sandboxes, std::shared_ptr<Sandbox> sandbox, std::uint64_t ticks) {
  const std::string id = sandbox->record.id;
  Sandboxes::SnapshotOrder order{new_id(), {}, true};
  const auto done = co_await sandboxes.snapshot(id, std::move(order));
  if (!done && done.error().kind != ErrorKind::conflict && done.error().kind != ErrorKind::not_found)
    log::warn("sandbox.snapshot_failed", {{"sandbox", id}, {"error", done.error()}});
  sandbox->snapshot_at = Clock::now();
  sandbox->snapshot_ticks = ticks;
  sandbox->snapshot_running = false;
}

}  // namespace

std::uint64_t processor_ticks(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  const std::size_t close = text ? text->rfind(')') : std::string::npos;
  if (close == std::string::npos) return 0;
  unsigned long user = 0, system = 0;
  return std::sscanf(text->c_str() + close + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2 ? user + system
                                                                                                                             : 0;
}

asio::awaitable<void> take_snapshots(Sandboxes& sandboxes, const bool& stopping, std::chrono::milliseconds look,
                                     std::function<std::uint64_t(pid_t)> ticks) {
  const auto executor = co_await asio::this_coro::executor;
  const double ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  while (!stopping) {
    co_await sleep_for(look);
    for (const SandboxRecord& record : sandboxes.list()) {
      if (stopping || record.snapshot_every_s == 0 || record.state != SandboxState::running) continue;
      const auto sandbox = sandboxes.find(record.id);
      if (!sandbox || !sandbox->machine || sandbox->snapshot_running) continue;
      const std::chrono::duration<double> passed = Clock::now() - sandbox->snapshot_at;
      if (passed.count() < static_cast<double>(record.snapshot_every_s)) continue;
      // A guest that does nothing takes up to 1 % of a core under TCG.
      const std::uint64_t now = ticks(sandbox->machine.vm->pid());
      const double worked = now > sandbox->snapshot_ticks ? static_cast<double>(now - sandbox->snapshot_ticks) : 0;
      const bool idle =
          worked < std::min(passed.count(), 60.0) * ticks_per_s / 50 && sandboxes.disk_mark(record.id) == sandbox->snapshot_mark;
      if (idle) continue;
      sandbox->snapshot_running = true;
      spawn(executor, take_one(sandboxes, sandbox, now));
    }
  }
}

}  // namespace space::node
