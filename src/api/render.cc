#include "api/render.h"

#include "base/clock.h"

namespace space::api {

json::object render(const control::Sandbox& sandbox) {
  json::object metadata;
  for (const auto& [name, value] : sandbox.metadata) metadata[name] = value;
  json::object out{{"id", sandbox.id},
                   {"state", to_string(sandbox.state)},
                   {"template", sandbox.template_reference},
                   {"template_digest", nullptr},
                   {"cpus", sandbox.cpus},
                   {"memory_mib", sandbox.memory_mib},
                   {"disk_mib", sandbox.disk_mib},
                   {"metadata", std::move(metadata)},
                   {"created_at", rfc3339(sandbox.created_ms)}};
  if (!sandbox.template_digest.empty()) out["template_digest"] = sandbox.template_digest;
  if (sandbox.time_limit_s > 0) out["time_limit_s"] = sandbox.time_limit_s;
  if (sandbox.rest.idle_pause_s > 0) out["idle_pause_s"] = sandbox.rest.idle_pause_s;
  if (sandbox.rest.idle_suspend_s > 0) out["idle_suspend_s"] = sandbox.rest.idle_suspend_s;
  if (sandbox.rest.idle_cpu_percent != control::kIdleCpuPercent) out["idle_cpu_percent"] = sandbox.rest.idle_cpu_percent;
  if (sandbox.rest.suspend_at_limit) out["at_time_limit"] = "suspend";
  if (sandbox.ends_ms > 0) out["ends_at"] = rfc3339(sandbox.ends_ms);
  if (!sandbox.end_reason.empty()) out["end_reason"] = sandbox.end_reason;
  return out;
}

json::object render(const Error& error) {
  json::object out{{"status", http_status(error.kind)}, {"code", error.code}, {"detail", error.message}};
  if (!error.next.empty()) out["next"] = error.next;
  return out;
}

json::object render(const control::Operation& operation) {
  json::array spans;
  for (const control::Span& span : operation.spans)
    spans.push_back(json::object{{"name", span.name}, {"start_us", span.start_us}, {"duration_us", span.duration_us}});
  json::object out{{"id", operation.id},
                   {"kind", to_string(operation.kind)},
                   {"sandbox", operation.sandbox},
                   {"state", to_string(operation.state)},
                   {"cancel_requested", operation.cancel_requested},
                   {"created_at", rfc3339(operation.created_ms)},
                   {"started_at", nullptr},
                   {"finished_at", nullptr},
                   {"spans", std::move(spans)}};
  if (operation.started_ms > 0) out["started_at"] = rfc3339(operation.started_ms);
  if (operation.finished_ms > 0) out["finished_at"] = rfc3339(operation.finished_ms);
  if (!operation.reason.empty()) out["reason"] = operation.reason;
  using enum control::OperationKind;
  if (operation.kind == checkpoint || operation.kind == restore || operation.kind == fork || operation.kind == snapshot) {
    json::error_code error;
    const json::value request = json::parse(operation.request, error);
    for (const char* name : {"checkpoint", "children"})
      if (const json::value* value = !error && request.is_object() ? request.get_object().if_contains(name) : nullptr) out[name] = *value;
  }
  if (operation.error) out["error"] = render(*operation.error);
  return out;
}

json::object render(const control::Key& key) {
  json::object out{{"id", key.id},          {"name", key.name},        {"prefix", key.prefix},
                   {"tenant", key.tenant},  {"scopes", json::array()}, {"created_at", rfc3339(key.created_ms)},
                   {"expires_at", nullptr}, {"revoked_at", nullptr}};
  for (const std::string& word : key.scopes.words()) out["scopes"].as_array().emplace_back(word);
  if (key.expires_ms > 0) out["expires_at"] = rfc3339(key.expires_ms);
  if (key.revoked_ms > 0) out["revoked_at"] = rfc3339(key.revoked_ms);
  return out;
}

json::object render(const control::Event& event) {
  json::error_code ignored;
  json::value data = json::parse(event.data, ignored);
  json::object out{{"sequence", event.sequence}, {"type", event.type}, {"time", rfc3339(event.time_ms)}};
  if (!event.sandbox.empty()) out["sandbox"] = event.sandbox;
  if (!event.operation.empty()) out["operation"] = event.operation;
  out["data"] = data.is_object() ? std::move(data) : json::value(json::object());
  return out;
}

std::string render_change(const control::Operation& operation, const control::Sandbox* sandbox) {
  json::object out{{"operation", render(operation)}};
  if (sandbox) out["sandbox"] = render(*sandbox);
  return json::serialize(out);
}

}  // namespace space::api
