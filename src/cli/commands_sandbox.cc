#include <fmt/format.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/egress_policy.h"

namespace space::cli {

namespace {

constexpr std::chrono::seconds kWait{60};
constexpr const char* kSandboxes = "/v1/sandboxes";

std::string target_of(const std::string& sandbox) { return TargetBuilder(kSandboxes).segment(sandbox).str(); }

std::string describe_map(const json::object* map) {
  std::string out;
  if (map)
    for (const auto& [key, value] : *map)
      out += fmt::format("{}{}={}", out.empty() ? "" : ",", std::string_view(key),
                         value.is_string() ? std::string(value.get_string()) : json::serialize(value));
  return out;
}

Result<json::object> create_body(const CreateOptions& options) {
  json::object body;
  if (options.checkpoint.empty())
    body["template"] = options.template_name;
  else
    body["checkpoint"] = options.checkpoint;
  if (options.cpus > 0) body["cpus"] = options.cpus;
  if (options.memory_mib > 0) body["memory_mib"] = options.memory_mib;
  if (options.disk_mib > 0) body["disk_mib"] = options.disk_mib;
  if (options.time_limit_s > 0) body["time_limit_s"] = options.time_limit_s;
  if (!options.egress.empty()) {
    TRY(body["egress"], egress_settings(options.egress));
  }
  if (options.idle_pause_s > 0) body["idle_pause_s"] = options.idle_pause_s;
  if (options.idle_suspend_s > 0) body["idle_suspend_s"] = options.idle_suspend_s;
  if (options.idle_cpu_percent > 0) body["idle_cpu_percent"] = options.idle_cpu_percent;
  if (options.suspend_at_limit) body["at_time_limit"] = "suspend";
  TRY(json::object env, env_object(options.env));
  TRY(json::object metadata, pairs_object(options.metadata));
  if (!env.empty()) body["env"] = std::move(env);
  if (!metadata.empty()) body["metadata"] = std::move(metadata);
  return body;
}

}  // namespace

Task<> settle(Context& context, json::object& answer) {
  const json::object* operation = object_of(answer, "operation");
  if (!operation || text_of(*operation, "state") == "succeeded") co_return Result<>();
  const std::string sandbox = object_of(answer, "sandbox") ? text_of(*operation, "sandbox") : std::string();
  CO_TRY(answer["operation"], co_await context.api.finish(text_of(*operation, "id")));
  if (sandbox.empty()) co_return Result<>();
  if (auto now = co_await context.api.get(target_of(sandbox)))
    answer["sandbox"] = std::move(*now);
  else
    answer.erase("sandbox");  // it was deleted
  co_return Result<>();
}

Result<json::object> pairs_object(const std::vector<std::string>& pairs) {
  json::object out;
  for (const std::string& pair : pairs) {
    const auto equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(ErrorKind::invalid_argument, "bad_metadata", fmt::format("\"{}\" is not key=value", pair), "write -m project=demo");
    out[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return out;
}

Task<json::object> ask_for_sandbox(Context& context, CreateOptions options, std::chrono::seconds wait) {
  CO_TRY(json::object body, create_body(options));
  CO_TRY(json::object answer, co_await context.api.send("POST", kSandboxes, std::move(body), wait));
  if (!object_of(answer, "sandbox")) co_return fail(ErrorKind::internal, "bad_answer", "the server answered a create without a sandbox");
  co_return answer;
}

Task<int> create(Context& context, CreateOptions options) {
  Spinner spinner(context.executor, "creating a sandbox");
  const bool no_wait = options.no_wait;
  const auto wait = no_wait ? std::chrono::seconds(0) : kWait;
  CO_TRY(json::object answer, co_await ask_for_sandbox(context, std::move(options), wait));
  json::object sandbox = *object_of(answer, "sandbox");
  const std::string id = text_of(sandbox, "id");
  if (!no_wait && text_of(sandbox, "state") != "running") {
    spinner.text("waiting for sandbox " + id);
    CO_TRY_VOID(co_await settle(context, answer));
    CO_TRY(sandbox, co_await context.api.get(target_of(id)));
  }
  context.console.result(sandbox, id);
  co_return 0;
}

Task<int> list(Context& context, ListOptions options) {
  TargetBuilder target(kSandboxes);
  target.query_if("state", options.state);
  CO_TRY(const json::object metadata, pairs_object(options.metadata));
  for (const auto& [key, value] : metadata) target.query("metadata." + std::string(key), std::string_view(value.get_string()));
  json::object page;
  CO_TRY(const json::array sandboxes, co_await context.api.list(target.str(), "sandboxes", &page));
  if (context.console.as_json()) {
    context.console.value(sandboxes);
    co_return 0;
  }
  Table table({"ID", "STATE", "TEMPLATE", "CPUS", "MEMORY", "DISK", "AGE", "METADATA"});
  for (const json::value& item : sandboxes) {
    if (!item.is_object()) continue;
    const json::object& s = item.get_object();
    if (options.quiet) {
      context.console.line(printable(text_of(s, "id")));
      continue;
    }
    table.add({text_of(s, "id"), text_of(s, "state"), text_of(s, "template"), std::to_string(number_of(s, "cpus")),
               fmt::format("{} MiB", number_of(s, "memory_mib")), fmt::format("{} MiB", number_of(s, "disk_mib")),
               format_age(text_of(s, "created_at"), system_clock().wall_ms()), describe_map(object_of(s, "metadata"))});
  }
  if (options.quiet) co_return 0;
  context.console.line(table.text());
  if (const json::array* keyless = array_of(page, "without_key"))
    for (const json::value& item : *keyless)
      if (item.is_object())
        context.console.note(fmt::format("tenant {} has no key, and sandboxes: {}. To reach them: space key create --tenant {}",
                                         printable(text_of(item.get_object(), "tenant")), number_of(item.get_object(), "sandboxes"),
                                         printable(text_of(item.get_object(), "tenant"))));
  co_return 0;
}

Task<int> show(Context& context, std::string sandbox) {
  CO_TRY(const json::object found, co_await context.api.get(target_of(sandbox)));
  if (context.console.as_json()) {
    context.console.value(found);
    co_return 0;
  }
  for (const auto& [key, value] : found) {
    std::string text = value.is_string()   ? std::string(value.get_string())
                       : value.is_object() ? describe_map(&value.get_object())
                                           : json::serialize(value);
    if (!value.is_null() && !text.empty()) context.console.line(fmt::format("{:<16} {}", std::string_view(key), printable(text)));
  }
  co_return 0;
}

Task<int> remove(Context& context, std::vector<std::string> sandboxes, bool no_wait) {
  // All of them are tried; the first error is the one that is told at the end.
  Result<> first;
  for (const std::string& id : sandboxes) {
    Spinner spinner(context.executor, "deleting " + id);
    const auto wait = no_wait ? std::chrono::seconds(0) : kWait;
    auto answer = co_await context.api.send("DELETE", target_of(id), std::nullopt, wait);
    Result<> settled = answer ? Result<>() : tl::unexpected(answer.error());
    if (answer && !no_wait) settled = co_await settle(context, *answer);
    if (!settled && first) first = settled;
    if (!settled) continue;
    context.console.result(*answer, id);
  }
  if (!first) co_return tl::unexpected(first.error());
  co_return 0;
}

}  // namespace space::cli
