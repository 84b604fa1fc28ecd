// The content of a volume, for the api role, and what a sandbox has mounted. node reads none of it (relay.h); the guest's agent checks
// paths, owners and modes.
#include "base/json.h"
#include "base/random.h"
#include "node/access.h"
#include "node/mounts.h"
#include "node/routes.h"

namespace space::node {
namespace {

Task<> set_mounts(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, 256 << 10));
  JsonReader in(body);
  const json::array* list = in.array("mounts", kMostMounts);
  CO_TRY_VOID(in.done());
  std::vector<VolumeMount> mounts;
  if (list)
    for (const json::value& item : *list) {
      if (!item.is_object()) co_return fail(ErrorKind::invalid_argument, "invalid_field", "mounts must hold objects");
      JsonReader one(item.get_object(), "mounts");
      VolumeMount mount{one.text("volume", 20, 40), one.text("path", 1, 4095)};
      if (!is_id(mount.volume)) one.reject("volume", "must be a volume's id");
      CO_TRY_VOID(one.done());
      mounts.push_back(std::move(mount));
    }
  CO_TRY(auto sandbox, tenant_sandbox(parts.sandboxes, exchange));
  CO_TRY_VOID(co_await parts.mounts->set(std::move(sandbox), std::move(mounts)));
  co_return co_await reply_json(exchange, 200, json::object{});
}

}  // namespace

void add_volume_routes(http::Router& router, RouteParts& parts) {
  const std::string volume = "/v1/sandboxes/{id}/volume";
  const auto json = [&](const char* method, const std::string& kind, Parameters parameters, const char* doing) {
    router.add(method, volume + kind, [&parts, method, kind, parameters, doing](http::Exchange& e) {
      return carry_json(e, parts, method, "/v1/volume" + kind, parameters, doing);
    });
  };
  json("GET", "/path", {"path"}, "look at the file");
  json("PATCH", "/path", {"path"}, "change the file");
  json("DELETE", "/path", {"path"}, "remove the file");
  json("GET", "/dir", {"path", "depth"}, "list the folder");
  json("POST", "/dir", {"path", "uid", "gid", "mode", "force"}, "make the folder");
  router.add("GET", volume + "/file", [&parts](http::Exchange& e) { return carry_down(e, parts, "/v1/volume/file", {"path"}); });
  router.add("PUT", volume + "/file", [&parts](http::Exchange& e) {
    return carry_up(e, parts, "/v1/volume/file", {"path", "uid", "gid", "mode", "force"});
  });
  if (parts.mounts) router.add("PUT", "/v1/sandboxes/{id}/mounts", [&parts](http::Exchange& e) { return set_mounts(e, parts); });
}

}  // namespace space::node
