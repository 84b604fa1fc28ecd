#include <fmt/format.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/commands_egress.h"
#include "cli/egress_policy.h"

namespace space::cli {
namespace {

constexpr std::chrono::seconds kUpdateWait{60};

// "none" takes it away: null.
void add_number(json::object& body, const char* name, const std::string& text) {
  if (text.empty()) return;
  body[name] = text == "none" ? json::value(nullptr) : json::value(std::strtoll(text.c_str(), nullptr, 10));
}

void add_map(json::object& body, const char* name, json::object set, const std::vector<std::string>& unset) {
  for (const std::string& key : unset) set[key] = nullptr;
  if (!set.empty()) body[name] = std::move(set);
}

Result<json::object> update_body(const UpdateOptions& options) {
  json::object body;
  TRY(json::object env, env_object(options.env));
  TRY(json::object metadata, pairs_object(options.metadata));
  add_map(body, "env", std::move(env), options.unset_env);
  add_map(body, "metadata", std::move(metadata), options.unset_metadata);
  add_number(body, "time_limit_s", options.time_limit);
  add_number(body, "idle_pause_s", options.idle_pause);
  add_number(body, "idle_suspend_s", options.idle_suspend);
  add_number(body, "idle_cpu_percent", options.idle_cpu);
  if (!options.at_time_limit.empty()) body["at_time_limit"] = options.at_time_limit;
  if (options.cpus > 0) body["cpus"] = options.cpus;
  if (options.memory_mib > 0) body["memory_mib"] = options.memory_mib;
  if (!options.egress.empty()) {
    TRY(body["egress"], egress_settings(options.egress));
  }
  if (!body.empty()) return body;
  return fail(ErrorKind::invalid_argument, "nothing_to_change", "no setting was given", "see space update --help");
}

}  // namespace

Task<int> update(Context& context, UpdateOptions options) {
  CO_TRY(const json::object body, update_body(options));
  int status = 0;
  for (const std::string& id : options.sandboxes) {
    Spinner spinner(context.executor, "changing " + id);
    std::string target = TargetBuilder("/v1/sandboxes").segment(id).str();
    json::object copy = body;
    CO_TRY(json::object answer, co_await context.api.send("PATCH", std::move(target), std::move(copy), kUpdateWait));
    CO_TRY_VOID(co_await settle(context, answer));
    context.console.result(answer, id);
    if (options.egress.empty()) continue;
    CO_TRY(const int one, co_await check_in_force(context, id));
    if (one != 0) status = one;
  }
  co_return status;
}

}  // namespace space::cli
