#include "control/update.h"

#include "control/changes.h"
#include "control/egress_rows.h"
#include "control/rows.h"

namespace space::control {
namespace {

constexpr std::size_t kMostRequest = 16 << 20;

json::object to_json(const TextChanges& changes) {
  json::object out;
  for (const auto& [name, value] : changes) out[name] = value ? json::value(*value) : json::value(nullptr);
  return out;
}

TextChanges read_changes(JsonReader& reader, std::string_view name) {
  TextChanges out;
  const json::object* object = reader.object(name);
  if (!object) return out;
  for (const auto& item : *object)
    out[item.key()] = item.value().is_string() ? std::optional<std::string>(item.value().get_string()) : std::nullopt;
  return out;
}

}  // namespace

bool SandboxUpdate::empty() const {
  return metadata.empty() && env.empty() && !cpus && !memory_mib && !time_limit_s && !idle_pause_s && !idle_suspend_s &&
         !idle_cpu_percent && !suspend_at_limit && egress.empty();
}

std::string encode(const SandboxUpdate& update) {
  json::object out = node_part(update);
  if (!update.metadata.empty()) out["metadata"] = to_json(update.metadata);
  const auto number = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) out[name] = *value;
  };
  number("time_limit_s", update.time_limit_s);
  number("idle_pause_s", update.idle_pause_s);
  number("idle_suspend_s", update.idle_suspend_s);
  number("idle_cpu_percent", update.idle_cpu_percent);
  if (update.suspend_at_limit) out["suspend_at_limit"] = *update.suspend_at_limit;
  if (!update.egress.empty()) out["egress"] = update.egress;
  return json::serialize(out);
}

Result<SandboxUpdate> decode_update(const std::string& text) {
  TRY(const json::object object, parse_json_object(text, kMostRequest));
  JsonReader reader(object);
  SandboxUpdate out;
  out.metadata = read_changes(reader, "metadata");
  out.env = read_changes(reader, "env");
  out.cpus = reader.optional_number("cpus", 1, 1 << 20);
  out.memory_mib = reader.optional_number("memory_mib", 1, 1 << 24);
  out.time_limit_s = reader.optional_number("time_limit_s", 0, INT64_MAX / 2000);
  out.idle_pause_s = reader.optional_number("idle_pause_s", 0, INT64_MAX / 2000);
  out.idle_suspend_s = reader.optional_number("idle_suspend_s", 0, INT64_MAX / 2000);
  out.idle_cpu_percent = reader.optional_number("idle_cpu_percent", 1, 100);
  if (reader.has("suspend_at_limit")) out.suspend_at_limit = reader.boolean("suspend_at_limit");
  out.egress = reader.text("egress", 0, kMostRequest, "");
  TRY_VOID(reader.done());
  return out;
}

void apply(const TextChanges& changes, std::map<std::string, std::string>& to) {
  for (const auto& [name, value] : changes) {
    if (value)
      to[name] = *value;
    else
      to.erase(name);
  }
}

json::object node_part(const SandboxUpdate& update) {
  json::object out;
  if (!update.env.empty()) out["env"] = to_json(update.env);
  if (update.cpus) out["cpus"] = *update.cpus;
  if (update.memory_mib) out["memory_mib"] = *update.memory_mib;
  return out;
}

namespace changes {

Result<> apply_update(Session& session, Sandbox& sandbox, const std::string& operation, const std::string& request, std::int64_t now_ms) {
  TRY(const SandboxUpdate update, decode_update(request));
  apply(update.metadata, sandbox.metadata);
  sandbox.cpus = update.cpus.value_or(sandbox.cpus);
  sandbox.memory_mib = update.memory_mib.value_or(sandbox.memory_mib);
  sandbox.rest.idle_pause_s = update.idle_pause_s.value_or(sandbox.rest.idle_pause_s);
  sandbox.rest.idle_suspend_s = update.idle_suspend_s.value_or(sandbox.rest.idle_suspend_s);
  sandbox.rest.idle_cpu_percent = update.idle_cpu_percent.value_or(sandbox.rest.idle_cpu_percent);
  sandbox.rest.suspend_at_limit = update.suspend_at_limit.value_or(sandbox.rest.suspend_at_limit);
  if (update.time_limit_s) {
    sandbox.time_limit_s = *update.time_limit_s;
    sandbox.remaining_ms = 0;
    sandbox.ends_ms = sandbox.state == SandboxState::running && sandbox.time_limit_s > 0 ? now_ms + sandbox.time_limit_s * 1000 : 0;
  }
  session.exec(
      "UPDATE sandboxes SET metadata = :metadata, cpus = :cpus, memory_mib = :memory, rest = :rest, time_limit_s = :limit, remaining_ms = "
      ":remaining, "
      "ends_ms = :ends WHERE sequence = :sequence",
      rows::write_metadata(sandbox.metadata), sandbox.cpus, sandbox.memory_mib, rows::write_rest(sandbox.rest), sandbox.time_limit_s,
      sandbox.remaining_ms, sandbox.ends_ms, sandbox.sequence);
  if (!update.metadata.empty()) {
    session.exec("DELETE FROM labels WHERE sandbox = :id", sandbox.id);
    for (const auto& [name, value] : sandbox.metadata)
      session.exec("INSERT INTO labels (name, value, sandbox) VALUES (:name, :value, :sandbox)", name, value, sandbox.id);
  }
  if (!update.egress.empty()) TRY_VOID(put_egress(session, sandbox.tenant, sandbox.id, update.egress, std::nullopt, now_ms));
  rows::append_event(session, {0, sandbox.tenant, "sandbox.updated", sandbox.id, operation, "{}", now_ms});
  return {};
}

}  // namespace changes
}  // namespace space::control
