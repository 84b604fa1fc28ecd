#include "control/adopt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "control/changes.h"
#include "control/egress_rows.h"
#include "control/rows.h"

namespace space::control {
namespace {

constexpr std::size_t kMostPorts = 64;
constexpr std::int64_t kStartMs = 60'000;  // a time limit begins when the sandbox runs, not when it was asked for

using S = SandboxState;

// Its end only where that is not what the limit says: it would be told to node for every sandbox.
Kept kept_of(const Sandbox& sandbox) {
  Kept kept{sandbox.metadata, sandbox.time_limit_s, sandbox.rest, {}, {}};
  const std::int64_t limit_ms = sandbox.time_limit_s * 1000;
  if (sandbox.ends_ms > sandbox.created_ms + limit_ms + kStartMs) kept.ends_ms = sandbox.ends_ms;
  if (sandbox.remaining_ms > limit_ms) kept.remaining_ms = sandbox.remaining_ms;
  return kept;
}

}  // namespace

std::string encode(const Kept& kept) {
  json::object out;
  if (!kept.metadata.empty()) {
    json::object& metadata = out["metadata"].emplace_object();
    for (const auto& [name, value] : kept.metadata) metadata[name] = value;
  }
  if (kept.time_limit_s > 0) out["time_limit_s"] = kept.time_limit_s;
  if (kept.ends_ms > 0) out["ends_ms"] = kept.ends_ms;
  if (kept.remaining_ms > 0) out["remaining_ms"] = kept.remaining_ms;
  if (kept.rest.idle_pause_s > 0) out["idle_pause_s"] = kept.rest.idle_pause_s;
  if (kept.rest.idle_suspend_s > 0) out["idle_suspend_s"] = kept.rest.idle_suspend_s;
  if (kept.rest.idle_cpu_percent != RestPolicy{}.idle_cpu_percent) out["idle_cpu_percent"] = kept.rest.idle_cpu_percent;
  if (kept.rest.suspend_at_limit) out["suspend_at_limit"] = true;
  if (!kept.public_ports.empty()) out["public_ports"] = json::value_from(kept.public_ports);
  if (!kept.settings.empty()) out["settings"] = kept.settings;
  if (out.empty()) return {};
  for (const char* spared : {"settings", "metadata"}) {
    std::string text = json::serialize(out);
    if (text.size() <= kMostKept) return text;
    out.erase(spared);
  }
  return json::serialize(out);
}

Result<Kept> decode_kept(const std::string& text) {
  Kept kept;
  if (text.empty()) return kept;
  TRY(const json::object object, parse_json_object(text, kMostKept));
  JsonReader in(object);
  in.ignore_unknown();  // a later version may have kept more
  if (in.has("metadata")) kept.metadata = in.text_map("metadata", 1024, kMostKept);
  kept.time_limit_s = in.number("time_limit_s", 0, INT64_MAX / 2000, 0);
  kept.ends_ms = in.number("ends_ms", 0, INT64_MAX, 0);
  kept.remaining_ms = in.number("remaining_ms", 0, INT64_MAX / 2, 0);
  kept.rest.idle_pause_s = in.number("idle_pause_s", 0, INT64_MAX / 2000, 0);
  kept.rest.idle_suspend_s = in.number("idle_suspend_s", 0, INT64_MAX / 2000, 0);
  kept.rest.idle_cpu_percent = in.number("idle_cpu_percent", 1, 100, RestPolicy{}.idle_cpu_percent);
  kept.rest.suspend_at_limit = in.boolean("suspend_at_limit", false);
  kept.settings = in.text("settings", 0, kMostKept, "");
  if (const json::array* ports = in.has("public_ports") ? in.array("public_ports", kMostPorts) : nullptr)
    for (const json::value& port : *ports) {
      if (!port.is_int64() || port.get_int64() < 1 || port.get_int64() > 65535)
        return fail(ErrorKind::corrupt, "kept_unreadable", "public_ports must hold ports");
      kept.public_ports.push_back(static_cast<std::uint16_t>(port.get_int64()));
    }
  TRY_VOID(in.done());
  return kept;
}

namespace changes {

// Two statements of each, since the one of a single sandbox is asked at every create and goes by an index.
std::map<std::string, std::string> kept_settings(Session& session, const std::string& sandbox) {
  const bool every = sandbox.empty();
  const auto pick = [&](const std::string& all, const std::string& one, auto ask) {
    return every ? ask(all + " WHERE :any = ''") : ask(all + " WHERE " + one + " = :id");
  };
  std::map<std::string, Kept> all;
  for (const Sandbox& one : pick("", "id", [&](const std::string& where) { return rows::sandboxes(session, where, sandbox); }))
    if (one.state != S::deleting && one.state != S::failed) all.emplace(one.id, kept_of(one));
  const auto settings = [&](const std::string& text) { return session.query<std::string, std::string>(text, sandbox); };
  for (auto& [id, text] : pick("SELECT sandbox, text FROM settings", "sandbox", settings))
    if (const auto found = all.find(id); found != all.end()) found->second.settings = std::move(text);
  const auto ports = [&](const std::string& text) { return session.query<std::string, long long>(text + " ORDER BY port", sandbox); };
  for (const auto& [id, port] : pick("SELECT sandbox, port FROM public_ports", "sandbox", ports))
    if (const auto found = all.find(id); found != all.end()) found->second.public_ports.push_back(static_cast<std::uint16_t>(port));
  std::map<std::string, std::string> out;
  for (const auto& [id, kept] : all) out.emplace(id, encode(kept));
  return out;
}

bool adopt_sandbox(Session& session, Sandbox sandbox, const Kept& kept, std::int64_t now_ms) {
  if (rows::sandbox(session, sandbox.id)) return true;
  // A sandbox that was accepted has operations, and one that is gone an event, for longer than those are kept.
  const bool was_here =
      !session.query<long long>("SELECT sequence FROM operations WHERE sandbox = :id LIMIT 1", sandbox.id).empty() ||
      !session.query<long long>("SELECT sequence FROM events WHERE sandbox = :id AND type = 'sandbox.deleted' LIMIT 1", sandbox.id).empty();
  if (was_here) return false;
  if (sandbox.state != S::ended) sandbox.end_reason.clear();
  const std::int64_t anew_ms = kept.time_limit_s > 0 ? std::max(kept.time_limit_s * 1000, kLeastAnewMs) : 0;
  sandbox.ends_ms = sandbox.state == S::running && anew_ms > 0 ? std::max(kept.ends_ms, now_ms + anew_ms) : 0;
  sandbox.remaining_ms = sandbox.state == S::running ? 0 : std::max(kept.remaining_ms, anew_ms);
  session.exec(
      "INSERT INTO sandboxes (id, tenant, state, template, template_digest, cpus, memory_mib, disk_mib, metadata, time_limit_s, "
      "created_ms, "
      "ends_ms, remaining_ms, end_reason, over_ms, rest) VALUES (:id, :tenant, :state, :template, :digest, :cpus, :memory, :disk, "
      ":metadata, :limit, "
      ":created, :ends, :remaining, :reason, :over, :rest)",
      sandbox.id, sandbox.tenant, to_string(sandbox.state), sandbox.template_reference, sandbox.template_digest, sandbox.cpus,
      sandbox.memory_mib, sandbox.disk_mib, rows::write_metadata(kept.metadata), kept.time_limit_s, sandbox.created_ms, sandbox.ends_ms,
      sandbox.remaining_ms, sandbox.end_reason, sandbox.state == S::ended ? now_ms : 0, rows::write_rest(kept.rest));
  for (const auto& [name, value] : kept.metadata)
    session.exec("INSERT INTO labels (name, value, sandbox) VALUES (:name, :value, :sandbox)", name, value, sandbox.id);
  if (!kept.settings.empty()) (void)put_settings(session, sandbox.id, kept.settings, now_ms);
  for (const std::uint16_t port : kept.public_ports)
    session.exec("INSERT OR IGNORE INTO public_ports (sandbox, port) VALUES (:sandbox, :port)", sandbox.id, static_cast<long long>(port));
  rows::append_event(session, {0, sandbox.tenant, fmt::format("sandbox.{}", to_string(sandbox.state)), sandbox.id, "",
                               json::serialize(json::object{{"state", to_string(sandbox.state)}, {"reason", "adopted"}}), now_ms});
  return true;
}

bool adopt_egress(Session& session, const EgressSettings& settings, std::int64_t now_ms) {
  const auto sandbox = rows::sandbox(session, settings.sandbox);
  if (!sandbox || sandbox->tenant != settings.tenant || sandbox->state == S::deleting) return false;
  const auto present = session.query<long long>("SELECT generation FROM egress WHERE sandbox = :sandbox", settings.sandbox);
  if (!present.empty() && std::get<0>(present.front()) >= settings.generation) return false;
  session.exec("DELETE FROM egress WHERE sandbox = :sandbox", settings.sandbox);
  insert_egress(session, settings);
  rows::append_event(session, {0, settings.tenant, "egress.changed", settings.sandbox, "",
                               fmt::format(R"({{"generation":{}}})", settings.generation), now_ms});
  return true;
}

std::map<std::string, std::int64_t> tenants_without_key(Session& session) {
  std::map<std::string, std::int64_t> out;
  for (const auto& [tenant, count] : session.query<std::string, long long>(
           "SELECT tenant, COUNT(*) FROM sandboxes WHERE tenant NOT IN (SELECT tenant FROM keys WHERE revoked_ms = 0) GROUP BY tenant"))
    out.emplace(tenant, count);
  return out;
}

}  // namespace changes
}  // namespace space::control
