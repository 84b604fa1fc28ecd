#include <fmt/format.h>

#include <functional>
#include <map>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/egress_policy.h"

namespace space::cli {
namespace {

constexpr std::chrono::seconds kLifeWait{120};

std::string target_of(const std::string& sandbox, std::string_view verb) {
  return TargetBuilder("/v1/sandboxes").segment(sandbox).str() + "/" + std::string(verb);
}

// Sends a change, waits for its end, and gives the answer as it is then.
Task<json::object> carry_out(Context& context, std::string target, json::object body, std::string text) {
  Spinner spinner(context.executor, std::move(text));
  CO_TRY(json::object answer, co_await context.api.send("POST", std::move(target), std::move(body), kLifeWait));
  CO_TRY_VOID(co_await settle(context, answer));
  co_return answer;
}

std::string text_in(const json::object& answer, std::string_view name) {
  const json::object* operation = object_of(answer, "operation");
  return operation ? text_of(*operation, name) : std::string();
}

std::string bytes_in(const json::object& object, std::string_view name) {
  return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(number_of(object, name), 0)));
}

}  // namespace

Task<int> change_state(Context& context, std::string verb, std::vector<std::string> sandboxes) {
  for (const std::string& id : sandboxes) {
    CO_TRY(const json::object answer, co_await carry_out(context, target_of(id, verb), json::object(), fmt::format("{} {}", verb, id)));
    context.console.result(answer, id);
  }
  co_return 0;
}

Task<int> checkpoint(Context& context, std::string sandbox, std::string name, std::string verb) {
  json::object body;
  if (!name.empty()) body["name"] = name;
  CO_TRY(const json::object answer,
         co_await carry_out(context, target_of(sandbox, verb), std::move(body), fmt::format("taking a {} of {}", verb, sandbox)));
  context.console.result(answer, text_in(answer, "checkpoint"));
  co_return 0;
}

Task<int> list_checkpoints(Context& context, std::string sandbox) {
  TargetBuilder target("/v1/checkpoints");
  target.query_if("sandbox", sandbox);
  CO_TRY(const json::object answer, co_await context.api.get(target.str()));
  const json::array* found = array_of(answer, "checkpoints");
  const json::array all = found ? *found : json::array();
  if (context.console.as_json()) {
    context.console.value(all);
    co_return 0;
  }
  Table table({"ID", "KIND", "SANDBOX", "NAME", "OWN", "SHARED", "AGE"});
  for (const json::value& item : all) {
    if (!item.is_object()) continue;
    const json::object& c = item.get_object();
    const json::value* automatic = c.if_contains("automatic");
    const bool by_itself = automatic && automatic->is_bool() && automatic->get_bool();
    const std::string kind = text_of(c, "kind") == "file_snapshot" ? (by_itself ? "automatic" : "snapshot") : "checkpoint";
    table.add({text_of(c, "id"), kind, text_of(c, "sandbox"), text_of(c, "name"), bytes_in(c, "own_bytes"), bytes_in(c, "shared_bytes"),
               format_age(text_of(c, "created_at"), system_clock().wall_ms())});
  }
  context.console.line(table.text());
  co_return 0;
}

Task<int> remove_checkpoints(Context& context, std::vector<std::string> checkpoints) {
  for (const std::string& id : checkpoints) {
    std::string target = TargetBuilder("/v1/checkpoints").segment(id).str();
    CO_TRY(const json::object answer, co_await context.api.send("DELETE", std::move(target)));
    context.console.result(answer, id);
  }
  co_return 0;
}

Task<int> restore(Context& context, RestoreOptions options) {
  const std::string sandbox = options.sandbox;
  json::object body{{"checkpoint", options.checkpoint}};
  if (!options.path.empty()) body["path"] = options.path;
  if (!options.into.empty()) body["into"] = options.into;
  CO_TRY(const json::object answer, co_await carry_out(context, target_of(sandbox, "restore"), std::move(body), "restoring " + sandbox));
  context.console.result(answer, sandbox);
  co_return 0;
}

Task<int> fork(Context& context, ForkOptions options) {
  json::object body{{"count", options.count}};
  if (!options.checkpoint.empty()) body["checkpoint"] = options.checkpoint;
  CO_TRY(json::object env, env_object(options.env));
  CO_TRY(json::object metadata, pairs_object(options.metadata));
  if (!env.empty()) body["env"] = std::move(env);
  if (!metadata.empty()) body["metadata"] = std::move(metadata);
  if (!options.egress.empty()) {
    CO_TRY(body["egress"], egress_settings(options.egress));
  }
  if (options.time_limit_s > 0) body["time_limit_s"] = options.time_limit_s;
  if (options.idle_pause_s > 0) body["idle_pause_s"] = options.idle_pause_s;
  if (options.idle_suspend_s > 0) body["idle_suspend_s"] = options.idle_suspend_s;
  if (options.idle_cpu_percent > 0) body["idle_cpu_percent"] = options.idle_cpu_percent;
  CO_TRY(const json::object answer,
         co_await carry_out(context, target_of(options.sandbox, "fork"), std::move(body), "forking " + options.sandbox));
  if (context.console.as_json()) {
    context.console.value(answer);
    co_return 0;
  }
  const json::object* operation = object_of(answer, "operation");
  const json::array* found = operation ? array_of(*operation, "children") : nullptr;
  const json::array children = found ? *found : json::array();
  for (const json::value& child : children)
    if (child.is_string()) context.console.line(std::string_view(child.get_string()));
  co_return 0;
}

Task<int> tree(Context& context) {
  CO_TRY(const json::object answer, co_await context.api.get("/v1/tree"));
  const json::array* found = array_of(answer, "nodes");
  const json::array nodes = found ? *found : json::array();
  if (context.console.as_json()) {
    context.console.value(nodes);
    co_return 0;
  }
  std::map<std::string, const json::object*> known;
  std::map<std::string, std::vector<const json::object*>> below;
  for (const json::value& item : nodes)
    if (item.is_object()) known.emplace(text_of(item.get_object(), "id"), &item.get_object());
  for (const auto& [id, node] : known) {
    const std::string parent = text_of(*node, "parent");
    below[known.contains(parent) ? parent : std::string()].push_back(node);
  }
  Table table({"TREE", "KIND", "STATE", "DISK OWN", "DISK SHARED", "MEMORY OWN", "MEMORY SHARED"});
  const std::function<void(const std::string&, std::size_t)> add = [&](const std::string& parent, std::size_t depth) {
    if (depth > 64) return;
    for (const json::object* node : below[parent]) {
      const std::string id = text_of(*node, "id");
      table.add({std::string(2 * depth, ' ') + id, text_of(*node, "kind"), text_of(*node, "state") + text_of(*node, "name"),
                 bytes_in(*node, "disk_own_bytes"), bytes_in(*node, "disk_shared_bytes"), bytes_in(*node, "memory_own_bytes"),
                 bytes_in(*node, "memory_shared_bytes")});
      add(id, depth + 1);
    }
  };
  add("", 0);
  context.console.line(table.text());
  co_return 0;
}

}  // namespace space::cli
