#include "node/upkeep.h"

#include "base/log.h"

namespace space::node {
namespace {

constexpr std::chrono::seconds kLook{5};
constexpr int kLooksBetween = 120;  // ten minutes; the first a few seconds after the start

}  // namespace

Task<std::vector<tmpl::Need>> all_needs(const Sandboxes& sandboxes, Vault& vault, BlockingPool& disk) {
  // The checkpoints first: a sandbox that is made of one meanwhile is in the table then.
  auto read = [&vault] { return vault.everything(); };
  CO_TRY(const auto checkpoints, co_await disk.run(read));
  std::vector<tmpl::Need> needs;
  for (const auto& one : checkpoints) {
    const snapshot::Manifest& m = one->manifest;
    if (m.kind == snapshot::CheckpointKind::suspend) continue;  // its sandbox says so itself
    needs.push_back({"checkpoint", m.id, m.name, m.template_digest, m.base_key});
  }
  for (const SandboxRecord& record : sandboxes.list()) {
    if (record.end_reason == "record_unreadable")
      co_return fail(ErrorKind::corrupt, "record_unreadable",
                     "the record of sandbox " + record.id + " cannot be read: what it needs is not known", "delete that sandbox");
    needs.push_back({"sandbox", record.id, std::string(to_string(record.state)), record.template_digest, record.base_key});
  }
  co_return needs;
}

void add_bases(json::object& release, const std::vector<tmpl::BaseStatus>& bases) {
  json::array all;
  for (const tmpl::BaseStatus& base : bases) {
    json::object one{{"cpus", base.size.cpus},
                     {"memory_mib", base.size.memory_mib},
                     {"disk_mib", base.size.disk_mib},
                     {"state", tmpl::to_string(base.state)}};
    if (base.state == tmpl::BaseStatus::State::making)
      one["progress"] = json::object{{"step", base.step}, {"done", base.done}, {"of", base.of}};
    if (base.state == tmpl::BaseStatus::State::failed && base.error)
      one["error"] = json::object{{"code", base.error->code}, {"detail", base.error->message}};
    all.push_back(std::move(one));
  }
  if (!bases.empty()) release["base"] = tmpl::to_string(bases.front().state);
  release["bases"] = std::move(all);
}

asio::awaitable<void> prune_bases(tmpl::BaseImages& images, const Sandboxes& sandboxes, Vault& vault, const tmpl::TemplateStore& templates,
                                  BlockingPool& disk, const bool& stopping) {
  for (int looks = kLooksBetween - 1; !stopping; ++looks) {
    co_await sleep_for(kLook);
    if (stopping || looks < kLooksBetween) continue;
    looks = 0;
    auto list = [&templates] { return templates.list(); };
    auto releases = co_await disk.run(list);
    auto needs = co_await all_needs(sandboxes, vault, disk);
    if (!releases || !needs) {
      log::warn("base.not_pruned", {{"error", releases ? needs.error() : releases.error()}});
      continue;
    }
    auto keys = tmpl::base_keys(*needs);
    auto pruned = co_await images.prune(std::move(keys), std::move(*releases));
    if (!pruned) log::warn("base.not_pruned", {{"error", pruned.error()}});
  }
}

}  // namespace space::node
