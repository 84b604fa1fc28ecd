#include <fmt/format.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/event_stream.h"

namespace space::cli {
namespace {

std::string operation_target(const std::string& id) { return TargetBuilder("/v1/operations").segment(id).str(); }

std::string age_of(const json::object& object, std::string_view field) {
  return format_age(text_of(object, field), system_clock().wall_ms());
}

std::string short_digest(const std::string& digest) { return digest.substr(0, 19); }  // "sha256:" and 12 digits

void print_operation(Console& console, const json::object& operation) {
  if (console.as_json()) return console.value(operation);
  for (const char* name : {"id", "kind", "sandbox", "state", "created_at", "finished_at"})
    if (const std::string text = text_of(operation, name); !text.empty()) console.line(fmt::format("{:<12} {}", name, printable(text)));
  if (const json::object* error = object_of(operation, "error"))
    console.line(fmt::format("{:<12} {} ({})", "error", printable(text_of(*error, "detail")), printable(text_of(*error, "code"))));
  const json::array* spans = array_of(operation, "spans");
  if (!spans || spans->empty()) return;
  Table table({"STEP", "START", "TIME"});
  for (const json::value& item : *spans)
    if (item.is_object())
      table.add({text_of(item.get_object(), "name"),
                 fmt::format("{:.1f} ms", static_cast<double>(number_of(item.get_object(), "start_us")) / 1000),
                 fmt::format("{:.1f} ms", static_cast<double>(number_of(item.get_object(), "duration_us")) / 1000)});
  console.line(table.text());
}

// A list as JSON or as a table whose rows `row` makes.
template <class Row>
void print_list(Console& console, const json::array& items, std::vector<std::string> header, Row row) {
  if (console.as_json()) return console.value(items);
  Table table(std::move(header));
  for (const json::value& item : items)
    if (item.is_object()) table.add(row(item.get_object()));
  console.line(table.text());
}

// "ready", "making 40 %", and those of other sizes behind their memory: "ready, 1024 MiB failed (disk_too_small)".
std::string describe_bases(const json::object& t) {
  const json::array* bases = array_of(t, "bases");
  std::string out;
  for (const json::value& item : bases ? *bases : json::array()) {
    if (!item.is_object()) continue;
    const json::object& base = item.get_object();
    if (!out.empty()) out += fmt::format(", {} MiB ", number_of(base, "memory_mib"));
    out += text_of(base, "state");
    if (const json::object* progress = object_of(base, "progress"); progress && number_of(*progress, "of") > 0)
      out += fmt::format(" {} %", number_of(*progress, "done") * 100 / number_of(*progress, "of"));
    if (const json::object* error = object_of(base, "error")) out += fmt::format(" ({})", text_of(*error, "code"));
  }
  return out;
}

}  // namespace

Task<int> list_templates(Context& context) {
  CO_TRY(const json::array templates, co_await context.api.list("/v1/templates", "templates"));
  print_list(context.console, templates, {"TEMPLATE", "DIGEST", "CPUS", "MEMORY", "DISK", "FILES", "BASE", "AGE"},
             [](const json::object& t) {
               return std::vector<std::string>{fmt::format("{}:{}", text_of(t, "name"), text_of(t, "tag")),
                                               short_digest(text_of(t, "digest")),
                                               std::to_string(number_of(t, "cpus")),
                                               fmt::format("{} MiB", number_of(t, "memory_mib")),
                                               fmt::format("{} MiB", number_of(t, "disk_mib")),
                                               format_bytes(static_cast<std::uint64_t>(number_of(t, "rootfs_bytes"))),
                                               describe_bases(t),
                                               age_of(t, "created_at")};
             });
  co_return 0;
}

Task<int> remove_template(Context& context, std::string reference) {
  CO_TRY(const json::object answer, co_await context.api.send("DELETE", TargetBuilder("/v1/templates").segment(reference).str()));
  context.console.result(answer, reference);
  co_return 0;
}

Task<int> list_operations(Context& context, std::string sandbox) {
  CO_TRY(const json::array operations,
         co_await context.api.list(TargetBuilder("/v1/operations").query_if("sandbox", sandbox).str(), "operations"));
  print_list(context.console, operations, {"ID", "KIND", "SANDBOX", "STATE", "AGE"}, [](const json::object& o) {
    return std::vector<std::string>{text_of(o, "id"), text_of(o, "kind"), text_of(o, "sandbox"), text_of(o, "state"),
                                    age_of(o, "created_at")};
  });
  co_return 0;
}

Task<int> show_operation(Context& context, std::string operation, bool wait) {
  CO_TRY(json::object found, co_await context.api.get(operation_target(operation)));
  const std::string state = text_of(found, "state");
  if (wait && (state == "pending" || state == "running")) {
    Spinner spinner(context.executor, fmt::format("waiting for {} of {}", text_of(found, "kind"), text_of(found, "sandbox")));
    CO_TRY(found, co_await context.api.finish(operation));
  }
  print_operation(context.console, found);
  co_return 0;
}

Task<int> cancel_operation(Context& context, std::string operation) {
  CO_TRY(const json::object answer, co_await context.api.send("POST", operation_target(operation) + "/cancel", json::object()));
  const json::object* inner = object_of(answer, "operation");
  print_operation(context.console, inner ? *inner : answer);
  co_return 0;
}

Task<int> create_key(Context& context, KeyOptions options) {
  json::object body = {{"name", options.name}};
  if (!options.tenant.empty()) body["tenant"] = options.tenant;
  if (!options.scopes.empty()) body["scopes"] = json::value_from(options.scopes);
  if (options.expires_in_s > 0) body["expires_in_s"] = options.expires_in_s;
  CO_TRY(const json::object key, co_await context.api.send("POST", "/v1/keys", std::move(body)));
  if (context.console.as_json()) {
    context.console.value(key);
    co_return 0;
  }
  context.console.line(text_of(key, "key"));
  context.console.note("space: keep it now; only its hash is stored");
  co_return 0;
}

Task<int> list_keys(Context& context, std::string tenant) {
  CO_TRY(const json::array keys, co_await context.api.list(TargetBuilder("/v1/keys").query_if("tenant", tenant).str(), "keys"));
  print_list(context.console, keys, {"ID", "NAME", "KEY", "TENANT", "SCOPES", "AGE", "EXPIRES", "STATE"}, [](const json::object& k) {
    std::string scopes;
    if (const json::array* words = array_of(k, "scopes"))
      for (const json::value& word : *words)
        if (word.is_string()) scopes += (scopes.empty() ? "" : ",") + std::string(word.as_string());
    const std::string expires = text_of(k, "expires_at");
    return std::vector<std::string>{text_of(k, "id"),
                                    text_of(k, "name"),
                                    text_of(k, "prefix") + "…",
                                    text_of(k, "tenant"),
                                    scopes,
                                    age_of(k, "created_at"),
                                    expires.empty() ? "never" : expires,
                                    text_of(k, "revoked_at").empty() ? "valid" : "revoked"};
  });
  co_return 0;
}

Task<int> revoke_key(Context& context, std::string key) {
  CO_TRY(const json::object answer, co_await context.api.send("DELETE", TargetBuilder("/v1/keys").segment(key).str()));
  context.console.result(answer, key);
  co_return 0;
}

Task<int> follow_events(Context& context, std::string after) {
  EventStreamOptions options;
  options.last_id = std::move(after);
  EventStream stream(context.api, "/v1/events", options);
  for (;;) {
    CO_TRY(const std::optional<http::SseEvent> event, co_await stream.next());
    if (!event) co_return 0;
    context.console.result(event_object(*event),
                           fmt::format("{:<8} {:<24} {}", printable(event->id), printable(event->event), printable(event->data)));
  }
}

Task<int> show_version(Context& context) {
  if (!context.console.as_json()) context.console.line("client           space " SPACE_VERSION);
  CO_TRY(json::object server, co_await context.api.get("/v1/version"));
  if (context.console.as_json()) {
    context.console.value(json::object{{"client", SPACE_VERSION}, {"server", server}});
    co_return 0;
  }
  context.console.line(fmt::format("{:<16} space {}", "server", printable(text_of(server, "version"))));
  for (const auto& [key, value] : server)
    if (key != "version" && !value.is_null())
      context.console.line(fmt::format("{:<16} {}", std::string_view(key),
                                       printable(value.is_string() ? std::string(value.get_string()) : json::serialize(value))));
  co_return 0;
}

}  // namespace space::cli
