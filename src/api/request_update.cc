// The body of a PATCH: what it names is set, null takes away, the rest stays (as RFC 7396 merges). The values follow a create's rules.
#include <array>

#include "api/request.h"
#include "control/labels.h"

namespace space::api {
namespace {

constexpr const char* kNoPolicy = R"({"policy":{"mode":"none"}})";

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 4096 && name.find('\0') == name.npos && name.find('=') == name.npos;
}

// Takes the names with null out of `from`; gives the others.
json::object without_nulls(const json::object& from, control::TextChanges& changes, JsonReader& reader, std::string_view field) {
  json::object rest;
  for (const auto& item : from) {
    if (!item.value().is_null())
      rest[item.key()] = item.value();
    else if (is_plain_name(item.key()))
      changes[item.key()] = std::nullopt;
    else
      reader.reject(field, "must have names without '=' and NUL");
  }
  return rest;
}

}  // namespace

Result<UpdateBody> read_update(const json::object& body) {
  JsonReader reader(body);
  UpdateBody out;
  control::SandboxUpdate& update = out.update;
  json::object given;  // as a create could have it
  for (const char* name :
       {"metadata", "env", "cpus", "memory_mib", "time_limit_s", "idle_pause_s", "idle_suspend_s", "idle_cpu_percent", "at_time_limit"}) {
    json::value value = reader.value(name);
    if (!value.is_null()) given[name] = std::move(value);
  }
  json::value egress = reader.value("egress");
  if (const json::object* env = reader.object("env")) given["env"] = without_nulls(*env, update.env, reader, "env");
  if (const json::object* metadata = reader.object("metadata"))
    given["metadata"] = without_nulls(*metadata, update.metadata, reader, "metadata");
  for (const char* name : {"cpus", "memory_mib"})
    if (reader.has(name) && body.at(name).is_null()) reader.reject(name, "cannot be taken away");
  TRY_VOID(reader.done());
  TRY(CreateBody same, read_create(given));
  for (const auto& [name, value] : update.metadata) TRY_VOID(control::check_label(name));  // those that it takes away
  for (auto& [name, value] : same.env) update.env[name] = std::move(value);
  for (auto& [name, value] : same.metadata) update.metadata[name] = std::move(value);
  update.cpus = same.cpus;
  update.memory_mib = same.memory_mib;
  if (reader.has("time_limit_s")) update.time_limit_s = same.time_limit_s;
  if (reader.has("idle_pause_s")) update.idle_pause_s = same.rest.idle_pause_s;
  if (reader.has("idle_suspend_s")) update.idle_suspend_s = same.rest.idle_suspend_s;
  if (reader.has("idle_cpu_percent")) update.idle_cpu_percent = same.rest.idle_cpu_percent;
  if (reader.has("at_time_limit")) update.suspend_at_limit = same.rest.suspend_at_limit;
  if (reader.has("egress")) out.egress = egress.is_null() ? json::parse(kNoPolicy) : std::move(egress);
  return out;
}

}  // namespace space::api
