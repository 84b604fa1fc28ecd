#include "node/retention.h"

#include "base/log.h"
#include "snapshot/upkeep.h"

namespace space::node {

std::vector<std::string> retired(const std::vector<std::shared_ptr<const Checkpoint>>& all, const RetentionSettings& settings,
                                 const std::map<std::string, std::int64_t>& kept, std::int64_t now_ms) {
  std::vector<snapshot::CheckpointAge> asked_for;
  std::map<std::string, std::vector<snapshot::CheckpointAge>> automatic;  // by sandbox
  for (const auto& one : all) {
    const snapshot::Manifest& m = one->manifest;
    const snapshot::CheckpointAge age{m.id, m.sandbox, m.kind, m.created_ms, !m.name.empty()};
    if (m.automatic)
      automatic[m.sandbox].push_back(age);
    else
      asked_for.push_back(age);
  }
  snapshot::RetentionRules rules;
  rules.checkpoints.keep_last = settings.keep_checkpoints;
  rules.checkpoints.keep_for_ms = settings.keep_checkpoints_ms;
  rules.file_snapshots = rules.checkpoints;
  std::vector<std::string> out = snapshot::expired(std::move(asked_for), rules, now_ms);
  for (auto& [sandbox, snapshots] : automatic) {
    const auto found = kept.find(sandbox);
    if (found == kept.end()) {
      for (const snapshot::CheckpointAge& one : snapshots) out.push_back(one.id);
      continue;
    }
    snapshot::RetentionRules own;
    own.file_snapshots.keep_last = static_cast<std::uint32_t>(found->second);
    const auto old = snapshot::expired(std::move(snapshots), own, now_ms);
    out.insert(out.end(), old.begin(), old.end());
  }
  return out;
}

void retire(Vault& vault, const RetentionSettings& settings, const std::map<std::string, std::int64_t>& kept, std::int64_t now_ms) {
  const auto tenants = vault.tenants();
  if (!tenants) log::error("store.unreadable", {{"error", tenants.error()}});
  for (const std::string& tenant : tenants ? *tenants : std::vector<std::string>{}) {
    const auto all = vault.list(tenant);
    if (!all) log::error("store.unreadable", {{"tenant", tenant}, {"error", all.error()}});
    for (const std::string& id : all ? retired(*all, settings, kept, now_ms) : std::vector<std::string>{}) {
      if (auto gone = vault.forget(tenant, id); gone)
        log::info("checkpoint.retired", {{"tenant", tenant}, {"checkpoint", id}});
      else
        log::error("checkpoint.not_retired", {{"tenant", tenant}, {"checkpoint", id}, {"error", gone.error()}});
    }
  }
}

}  // namespace space::node
