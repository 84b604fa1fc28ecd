#include "e2b/render.h"

#include "e2b/request.h"

namespace space::e2b {
namespace {
// E2B knows no sandbox without an end; one that was made without a limit ends in a time that nobody waits for.
constexpr std::int64_t kNoEnd_ms = 10LL * 365 * 86'400'000;
}  // namespace

std::int64_t started_ms(const Found& found) {
  return found.settings->started_ms > 0 ? found.settings->started_ms : found.sandbox.created_ms;
}

json::object render_sandbox(const control::Sandbox& sandbox, const Settings& settings, const Tokens& tokens) {
  const std::string name = template_id_of(sandbox.template_reference);
  json::object out{{"sandboxID", sandbox.id},      {"templateID", name},          {"alias", name},
                   {"clientID", "space"},          {"envdVersion", kEnvdVersion}, {"domain", nullptr},
                   {"trafficAccessToken", nullptr}};
  if (settings.secure) out["envdAccessToken"] = tokens.envd;
  if (!settings.public_traffic) out["trafficAccessToken"] = tokens.traffic;
  return out;
}

json::object render_listed(const Found& found) {
  const control::Sandbox& sandbox = found.sandbox;
  const std::int64_t ends_ms = found.running ? (sandbox.ends_ms > 0 ? sandbox.ends_ms : sandbox.created_ms + kNoEnd_ms)
                                             : (found.settings->paused_ms > 0 ? found.settings->paused_ms : sandbox.created_ms);
  const std::string name = template_id_of(sandbox.template_reference);
  json::object metadata;
  for (const auto& [key, value] : sandbox.metadata) metadata[key] = value;
  json::array mounts;
  for (const VolumeMount& mount : found.settings->mounts) mounts.push_back(json::object{{"name", mount.name}, {"path", mount.path}});
  return {{"sandboxID", sandbox.id},
          {"templateID", name},
          {"alias", name},
          {"clientID", "space"},
          {"startedAt", rfc3339(started_ms(found))},
          {"endAt", rfc3339(ends_ms)},
          {"state", found.running ? "running" : "paused"},
          {"cpuCount", sandbox.cpus},
          {"memoryMB", sandbox.memory_mib},
          {"diskSizeMB", sandbox.disk_mib},
          {"envdVersion", kEnvdVersion},
          {"metadata", std::move(metadata)},
          {"volumeMounts", std::move(mounts)}};
}

json::object render_detail(const Found& found, const Tokens& tokens) {
  const Settings& settings = *found.settings;
  json::object out = render_listed(found);
  out["domain"] = nullptr;
  if (settings.secure && !tokens.envd.empty()) out["envdAccessToken"] = tokens.envd;
  out["allowInternetAccess"] = nullptr;
  if (settings.internet) out["allowInternetAccess"] = *settings.internet;
  if (!settings.network.empty()) out["network"] = settings.network;
  out["lifecycle"] = json::object{{"onTimeout", settings.auto_pause ? "pause" : "kill"}, {"autoResume", settings.auto_resume}};
  return out;
}

}  // namespace space::e2b
