#include "control/rows.h"

#include <boost/json.hpp>

namespace space::control::rows {
namespace json = boost::json;
namespace {

// What we wrote ourselves. A damaged text gives an empty value: one bad row must not take the list with it.
json::value parsed(const std::string& text) {
  json::error_code error;
  json::value value = text.empty() ? json::value() : json::parse(text, error);
  return error ? json::value() : value;
}
std::string text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}
std::int64_t number_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_int64() ? value->get_int64() : 0;
}

}  // namespace

std::string write_metadata(const std::map<std::string, std::string>& metadata) {
  json::object out;
  for (const auto& [name, value] : metadata) out[name] = value;
  return json::serialize(out);
}

std::map<std::string, std::string> read_metadata(const std::string& text) {
  std::map<std::string, std::string> out;
  const json::value value = parsed(text);
  if (const json::object* object = value.if_object())
    for (const auto& item : *object) out.emplace(item.key(), text_of(*object, item.key()));
  return out;
}

std::string write_rest(const RestPolicy& rest) {
  if (rest == RestPolicy()) return {};
  return json::serialize(json::object{{"idle_pause_s", rest.idle_pause_s},
                                      {"idle_suspend_s", rest.idle_suspend_s},
                                      {"idle_cpu_percent", rest.idle_cpu_percent},
                                      {"suspend_at_limit", rest.suspend_at_limit ? 1 : 0}});
}

RestPolicy read_rest(const std::string& text) {
  RestPolicy out;
  const json::value value = parsed(text);
  const json::object* object = value.if_object();
  if (!object) return out;
  out.idle_pause_s = number_of(*object, "idle_pause_s");
  out.idle_suspend_s = number_of(*object, "idle_suspend_s");
  if (const std::int64_t percent = number_of(*object, "idle_cpu_percent"); percent > 0)
    out.idle_cpu_percent = percent;  // rows of before have none
  out.suspend_at_limit = number_of(*object, "suspend_at_limit") != 0;
  return out;
}

std::string write_error(const std::optional<Error>& error) {
  if (!error) return {};
  return json::serialize(json::object{{"kind", static_cast<std::int64_t>(http_status(error->kind))},
                                      {"code", error->code},
                                      {"message", error->message},
                                      {"next", error->next}});
}

std::optional<Error> read_error(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const json::value value = parsed(text);
  const json::object* object = value.if_object();
  if (!object) return Error{ErrorKind::corrupt, "store_corrupt", "the stored error cannot be read", ""};
  return Error{error_kind_from_http(static_cast<int>(number_of(*object, "kind"))), text_of(*object, "code"), text_of(*object, "message"),
               text_of(*object, "next")};
}

std::string write_spans(const std::vector<Span>& spans) {
  if (spans.empty()) return {};
  json::array out;
  for (const Span& span : spans)
    out.push_back(json::object{{"name", span.name}, {"start_us", span.start_us}, {"duration_us", span.duration_us}});
  return json::serialize(out);
}

std::vector<Span> read_spans(const std::string& text) {
  std::vector<Span> out;
  const json::value value = parsed(text);
  if (const json::array* list = value.if_array())
    for (const json::value& item : *list)
      if (const json::object* span = item.if_object())
        out.push_back({text_of(*span, "name"), number_of(*span, "start_us"), number_of(*span, "duration_us")});
  return out;
}

Sandbox from_row(SandboxRow row) {
  Sandbox out;
  std::string state, metadata, rest;
  std::tie(out.sequence, out.id, out.tenant, state, out.template_reference, out.template_digest, out.cpus, out.memory_mib, out.disk_mib,
           metadata, out.time_limit_s, out.created_ms, out.ends_ms, out.remaining_ms, out.end_reason, rest) = std::move(row);
  out.state = sandbox_state(state).value_or(SandboxState::failed);
  out.metadata = read_metadata(metadata);
  out.rest = read_rest(rest);
  return out;
}

Operation from_row(OperationRow row) {
  Operation out;
  std::string kind, state, error, spans;
  std::tie(out.sequence, out.id, out.tenant, out.sandbox, kind, state, out.cancel_requested, out.reason, out.request, error, spans,
           out.created_ms, out.started_ms, out.finished_ms) = std::move(row);
  out.kind = operation_kind(kind).value_or(OperationKind::remove);
  out.state = operation_state(state).value_or(OperationState::failed);
  out.error = read_error(error);
  out.spans = read_spans(spans);
  return out;
}

std::optional<Sandbox> sandbox(Session& session, const std::string& id) {
  auto found = sandboxes(session, "WHERE id = :id", id);
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

std::optional<Operation> operation(Session& session, const std::string& id) {
  auto found = operations(session, "WHERE id = :id", id);
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

void append_event(Session& session, const Event& event) {
  session.exec(
      "INSERT INTO events (tenant, type, sandbox, operation, data, time_ms) VALUES (:tenant, :type, :sandbox, :operation, :data, :time)",
      event.tenant, event.type, event.sandbox, event.operation, event.data, event.time_ms);
}

}  // namespace space::control::rows
