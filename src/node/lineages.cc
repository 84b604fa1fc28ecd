#include "node/lineages.h"

#include <set>

#include "base/log.h"

namespace space::node {
namespace {

constexpr std::chrono::milliseconds kLineageLook{2'000};
constexpr int kMostIdleRetries = 300;  // looks; then it is done all the same, for what an earlier process left

Result<std::set<std::string>> of_checkpoints(Vault& vault) {
  TRY(const auto all, vault.everything());
  std::set<std::string> lineages;
  for (const auto& one : all) lineages.insert(one->manifest.lineage);
  return lineages;
}

// True when it is to be tried again soon.
Task<bool> forget_dead(Gateway& gateway, const Sandboxes& sandboxes, Vault& vault, BlockingPool& disk) {
  CO_TRY(const std::vector<Gateway::Lineage> known, co_await gateway.lineages());
  if (known.empty()) co_return false;
  auto read = [&vault] { return of_checkpoints(vault); };
  CO_TRY(std::set<std::string> alive, co_await disk.run(read));
  // After the checkpoints: whoever is being made from one that went meanwhile stands here.
  for (const SandboxRecord& record : sandboxes.list()) {
    if (record.state == SandboxState::creating) co_return true;
    alive.insert(record.lineage.empty() ? record.id : record.lineage);
  }
  bool again = false;
  for (const Gateway::Lineage& one : known) {
    if (alive.contains(one.lineage)) continue;
    const auto gone = co_await gateway.forget(one);
    if (gone) {
      log::info("lineage.forgotten", {{"lineage", one.lineage}});
      continue;
    }
    again = true;  // its policy is still there, or the sandbox is on its way
    if (gone.error().kind != ErrorKind::conflict) co_return fail(gone.error());
  }
  co_return again;
}

}  // namespace

asio::awaitable<void> watch_lineages(Gateway& gateway, const Sandboxes& sandboxes, Vault& vault, BlockingPool& disk) {
  std::uint64_t seen = 0;
  bool again = true;
  for (int idle = 0;; ++idle) {
    co_await sleep_for(kLineageLook);
    const std::uint64_t now = sandboxes.forgotten() + vault.forgotten();
    if (!again && now == seen && idle < kMostIdleRetries) continue;
    idle = 0;
    const auto done = co_await forget_dead(gateway, sandboxes, vault, disk);
    if (!done) log::debug("lineage.not_looked_at", {{"error", done.error()}});
    again = done.value_or(true);
    seen = now;
  }
}

}  // namespace space::node
