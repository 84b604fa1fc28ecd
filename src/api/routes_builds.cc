// Templates in the making: publishing a sandbox or a checkpoint, builds with their logs, and the files that clients send for them.
#include <fmt/format.h>

#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/encoding.h"
#include "base/random.h"
#include "build/builds.h"
#include "http/sse.h"

namespace space::api {
namespace {

constexpr std::size_t kBuildLimit = 8 << 20, kPageOfLog = 200;
constexpr std::chrono::seconds kLogKeepalive{15};

struct Named {
  std::string name, tag;
};

Result<Named> read_name(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (!is_template_reference(text) || text.starts_with("sha256:") || std::min(colon, text.size()) > 64 || text.size() > 129)
    return fail(ErrorKind::invalid_argument, "template_reference", "a template is published as NAME or NAME:TAG",
                "use small letters, digits, '-', '_' and, in the tag, '.'");
  return Named{text.substr(0, colon), colon == text.npos ? "latest" : text.substr(colon + 1)};
}

json::object render_build(const build::Build& b) {
  json::object out{{"id", b.id},
                   {"template", fmt::format("{}:{}", b.name, b.tag)},
                   {"state", to_string(b.state)},
                   {"digest", nullptr},
                   {"error", nullptr},
                   {"failed_step", nullptr},
                   {"steps", b.spec.steps.size()},
                   {"created_at", rfc3339(b.created_ms)},
                   {"started_at", nullptr},
                   {"finished_at", nullptr}};
  if (!b.digest.empty()) out["digest"] = b.digest;
  if (b.error) out["error"] = json::object{{"code", b.error->code}, {"message", b.error->message}, {"next", b.error->next}};
  if (!b.failed_step.empty()) out["failed_step"] = b.failed_step;
  if (b.started_ms > 0) out["started_at"] = rfc3339(b.started_ms);
  if (b.finished_ms > 0) out["finished_at"] = rfc3339(b.finished_ms);
  return out;
}

Task<> publish(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const json::object body, co_await read_json(exchange));
  JsonReader r(body);
  build::Builds::Publish wanted;
  const std::string name = r.text("name", 1, 160);
  wanted.sandbox = r.text("sandbox", 0, 40, "");
  wanted.checkpoint = r.text("checkpoint", 0, 40, "");
  if (wanted.sandbox.empty() == wanted.checkpoint.empty()) r.reject("checkpoint", "or sandbox must be given, and not both");
  if (!wanted.sandbox.empty() && !is_id(wanted.sandbox)) r.reject("sandbox", "must be a sandbox's id");
  if (!wanted.checkpoint.empty() && !is_id(wanted.checkpoint)) r.reject("checkpoint", "must be a checkpoint's id");
  CO_TRY_VOID(r.done());
  CO_TRY(Named named, read_name(name));
  wanted.operation = new_id();
  wanted.tenant = tenant_of(exchange);
  wanted.name = std::move(named.name);
  wanted.tag = std::move(named.tag);
  CO_TRY(const json::object published, co_await services.builds->publish(std::move(wanted)));
  co_return co_await exchange.reply(http::json_response(201, json::serialize(published)));
}

// {"name": NAME:TAG, and the fields of build/spec.h}
Task<> create_build(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY_VOID(check_media_type(exchange));
  CO_TRY(const std::string text, co_await exchange.read_body(kBuildLimit));
  CO_TRY(json::object body, parse_json_object(text, kBuildLimit));
  const json::value* given = body.if_contains("name");
  if (!given || !given->is_string())
    co_return fail(ErrorKind::invalid_argument, "invalid_field", "name must be given: what the template is to be published as",
                   "send NAME or NAME:TAG");
  CO_TRY(Named named, read_name(std::string(given->get_string())));
  body.erase("name");
  CO_TRY(build::Spec spec, build::read_spec(body));
  if (!is_template_reference(spec.parent))
    co_return fail(ErrorKind::invalid_argument, "template_reference", "parent must be a template's name, name:tag or sha256:digest",
                   "see GET /v1/templates");
  build::Builds::Wanted wanted;
  wanted.tenant = tenant_of(exchange);
  wanted.name = std::move(named.name);
  wanted.tag = std::move(named.tag);
  CO_TRY(const build::Build made, co_await services.builds->create(std::move(wanted)));
  CO_TRY(const build::Build begun, co_await services.builds->begin(made.tenant, made.id, std::move(spec)));
  co_return co_await exchange.reply(http::json_response(202, json::serialize(render_build(begun))));
}

Task<> list_builds(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  json::array items;
  for (const build::Build& one : services.builds->list(tenant_of(exchange))) items.push_back(render_build(one));
  const json::object out{{"builds", std::move(items)}};
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> get_build(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const build::Build found, services.builds->find(tenant_of(exchange), exchange.param("build")));
  co_return co_await exchange.reply(http::json_response(200, json::serialize(render_build(found))));
}

Task<> cancel(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const build::Build found, co_await services.builds->cancel(tenant_of(exchange), exchange.param("build")));
  co_return co_await exchange.reply(http::json_response(202, json::serialize(render_build(found))));
}

// Every line, numbered from 1, and the build itself once it is over.
Task<> stream(Services& services, http::Exchange& exchange, std::string tenant, std::string id, std::size_t from) {
  http::SseWriter writer(exchange);
  CO_TRY_VOID(co_await writer.start());
  while (!services.stopping) {
    CO_TRY(const build::Build before, services.builds->find(tenant, id));
    CO_TRY(const auto entries, co_await services.builds->log(tenant, id, from, kPageOfLog, kLogKeepalive));
    for (const build::LogEntry& entry : entries) {
      const json::object data{{"time", rfc3339(entry.time_ms)}, {"level", entry.level}, {"step", entry.step}, {"message", entry.message}};
      const http::SseEvent event{std::to_string(++from), "log", json::serialize(data)};
      CO_TRY_VOID(co_await writer.send(event));
    }
    if (!entries.empty()) continue;
    if (is_over(before.state)) {
      const http::SseEvent event{"", "end", json::serialize(render_build(before))};
      CO_TRY_VOID(co_await writer.send(event));
      break;
    }
    CO_TRY_VOID(co_await writer.keepalive());
  }
  co_return co_await writer.finish();
}

Task<> logs(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  const std::string id = exchange.param("build");
  CO_TRY_VOID(services.builds->find(tenant_of(exchange), id));
  CO_TRY(const auto last, read_event_id(exchange.headers().get("Last-Event-ID")));
  const auto from = static_cast<std::size_t>(last.value_or(0));
  ++services.counters.streams;
  auto result = co_await http::until_disconnected(exchange, stream(services, exchange, tenant_of(exchange), id, from));
  --services.counters.streams;
  co_return result;
}

Result<std::string> upload_name(const http::Exchange& exchange) {
  const std::string& name = exchange.param("digest");
  if (!build::is_upload(name))
    return fail(ErrorKind::invalid_argument, "upload_digest", "an upload is named by the SHA-256 of its bytes", "send 64 hex digits");
  return name;
}

Task<> upload_state(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const std::string name, upload_name(exchange));
  build::Builds& builds = *services.builds;
  const std::string tenant = tenant_of(exchange);
  auto look = [&builds, tenant, name] { return builds.uploads().find(tenant, name); };
  CO_TRY(const auto found, co_await builds.pool().run(look));
  const json::object out{{"digest", name}, {"present", found.has_value()}};
  co_return co_await exchange.reply(http::json_response(200, json::serialize(out)));
}

Task<> upload(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  CO_TRY(const std::string name, upload_name(exchange));
  CO_TRY_VOID(co_await services.builds->receive(exchange, tenant_of(exchange), name, true));
  const json::object out{{"digest", name}, {"present", true}};
  co_return co_await exchange.reply(http::json_response(201, json::serialize(out)));
}

}  // namespace

void add_build_routes(Routes& routes) {
  routes.add("POST", "/v1/templates", Access::publish, Repeat::kept, publish);
  routes.add("POST", "/v1/builds", Access::publish, Repeat::streamed, create_build);  // a build may be larger than what `kept` reads
  routes.add("GET", "/v1/builds", Access::key, Repeat::safe, list_builds);
  routes.add("GET", "/v1/builds/{build}", Access::key, Repeat::safe, get_build);
  routes.add("DELETE", "/v1/builds/{build}", Access::publish, Repeat::kept, cancel);
  routes.add("GET", "/v1/builds/{build}/logs", Access::key, Repeat::safe, logs);
  routes.add("GET", "/v1/uploads/{digest}", Access::publish, Repeat::safe, upload_state);
  routes.add("PUT", "/v1/uploads/{digest}", Access::publish, Repeat::streamed, upload);
}

}  // namespace space::api
