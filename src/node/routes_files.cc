#include "node/access.h"
#include "node/relay.h"
#include "node/routes.h"

namespace space::node {
namespace {

Task<> watch(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(auto sandbox, tenant_sandbox(parts.sandboxes, exchange));
  AgentTarget target("/v1/files/watch");
  CO_TRY_VOID(target.copy(exchange, {"path", "user", "recursive"}));
  Parameters names = {"created", "modified", "removed", "moved", "attributes", "overflow"};
  co_return co_await relay_events(exchange, std::move(sandbox), std::move(target), std::move(names), "watch the files");
}

}  // namespace

Task<> carry_json(http::Exchange& exchange, RouteParts& parts, std::string method, std::string path, Parameters parameters,
                  std::string doing) {
  CO_TRY(auto sandbox, tenant_sandbox(parts.sandboxes, exchange));
  AgentTarget target(std::move(path));
  CO_TRY_VOID(target.copy(exchange, parameters));
  co_return co_await relay_json(exchange, std::move(sandbox), std::move(method), std::move(target), std::move(doing));
}

Task<> carry_down(http::Exchange& exchange, RouteParts& parts, std::string path, Parameters parameters) {
  CO_TRY(auto sandbox, tenant_sandbox(parts.sandboxes, exchange));
  AgentTarget target(std::move(path));
  CO_TRY_VOID(target.copy(exchange, parameters));
  co_return co_await relay_down(exchange, std::move(sandbox), std::move(target), "read the file");
}

Task<> carry_up(http::Exchange& exchange, RouteParts& parts, std::string path, Parameters parameters) {
  CO_TRY(auto sandbox, tenant_sandbox(parts.sandboxes, exchange));
  AgentTarget target(std::move(path));
  CO_TRY_VOID(target.copy(exchange, parameters));
  co_return co_await relay_up(exchange, std::move(sandbox), "PUT", std::move(target), "write the file");
}

void add_file_routes(http::Router& router, RouteParts& parts) {
  const std::string files = "/v1/sandboxes/{id}/files";
  router.add("GET", files + "/content", [&parts](http::Exchange& e) {
    return carry_down(e, parts, "/v1/files/content", {"path", "user"});
  });
  router.add("PUT", files + "/content", [&parts](http::Exchange& e) {
    return carry_up(e, parts, "/v1/files/content", {"path", "user", "mode", "owner", "parents"});
  });
  router.add("GET", files + "/stat", [&parts](http::Exchange& e) {
    return carry_json(e, parts, "GET", "/v1/files/stat", {"path", "user"}, "look at the file");
  });
  router.add("GET", files + "/list", [&parts](http::Exchange& e) {
    return carry_json(e, parts, "GET", "/v1/files/list", {"path", "user", "depth", "limit", "after"}, "list the folder");
  });
  router.add("POST", files + "/mkdir",
             [&parts](http::Exchange& e) { return carry_json(e, parts, "POST", "/v1/files/mkdir", {}, "make the folder"); });
  router.add("POST", files + "/move",
             [&parts](http::Exchange& e) { return carry_json(e, parts, "POST", "/v1/files/move", {}, "move the file"); });
  router.add("DELETE", files, [&parts](http::Exchange& e) {
    return carry_json(e, parts, "DELETE", "/v1/files", {"path", "user", "recursive"}, "remove the file");
  });
  router.add("GET", files + "/watch", [&parts](http::Exchange& e) { return watch(e, parts); });
}

}  // namespace space::node
