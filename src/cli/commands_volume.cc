#include "cli/commands_volume.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "cli/commands.h"

namespace space::cli {
namespace {

constexpr std::chrono::seconds kVolumeWait{120};

Task<json::array> volumes(Context& context) {
  return context.api.list(TargetBuilder("/v1/sandboxes").query("metadata.space.kind", "volume").str(), "sandboxes");
}

std::string name_of(const json::object& volume) {
  const json::object* labels = object_of(volume, "metadata");
  return labels ? text_of(*labels, "space.volume") : std::string();
}

// A name is only one's that is not on its way out.
std::string find(const json::array& all, const std::string& wanted) {
  std::string by_name;
  for (const json::value& item : all) {
    if (!item.is_object()) continue;
    const json::object& volume = item.get_object();
    const std::string id = text_of(volume, "id"), state = text_of(volume, "state");
    if (id == wanted) return id;
    if (name_of(volume) == wanted && state != "deleting" && state != "failed") by_name = id;
  }
  return by_name;
}

}  // namespace

Task<int> create_volume(Context& context, std::string name) {
  Spinner spinner(context.executor, "creating a volume");
  json::object body{{"name", std::move(name)}};
  CO_TRY(json::object answer, co_await context.api.send("POST", "/v1/volumes", std::move(body), kVolumeWait));
  CO_TRY_VOID(co_await settle(context, answer));
  const json::object* volume = object_of(answer, "sandbox");
  if (!volume) co_return fail(ErrorKind::internal, "bad_answer", "the server answered a create without a volume");
  context.console.result(*volume, text_of(*volume, "id"));
  co_return 0;
}

Task<int> list_volumes(Context& context) {
  CO_TRY(const json::array all, co_await volumes(context));
  if (context.console.as_json()) {
    context.console.value(all);
    co_return 0;
  }
  Table table({"ID", "NAME", "STATE", "DISK", "AGE"});
  for (const json::value& item : all) {
    if (!item.is_object()) continue;
    const json::object& volume = item.get_object();
    table.add({text_of(volume, "id"), name_of(volume), text_of(volume, "state"), fmt::format("{} MiB", number_of(volume, "disk_mib")),
               format_age(text_of(volume, "created_at"), system_clock().wall_ms())});
  }
  context.console.line(table.text());
  co_return 0;
}

Task<int> remove_volumes(Context& context, std::vector<std::string> wanted) {
  CO_TRY(const json::array all, co_await volumes(context));
  std::vector<std::string> ids;
  for (const std::string& one : wanted) {
    ids.push_back(find(all, one));
    if (ids.back().empty())
      co_return fail(ErrorKind::not_found, "volume_not_found", fmt::format("there is no volume \"{}\" of yours", printable(one)),
                     "see what there is: space volume ls");
  }
  co_return co_await remove(context, std::move(ids), false);
}

}  // namespace space::cli
