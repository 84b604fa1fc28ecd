// Volumes, and their content by E2B's second API: whoever has a volume's token reads and writes its files. What a path, an owner or a
// mode may be is for the volume's agent to say (src/agent/routes_volume.cc).
#include <fmt/format.h>

#include "base/encoding.h"
#include "e2b/request.h"
#include "e2b/volumes.h"
#include "http/proxy.h"

namespace space::e2b {
namespace {

using control::Sandbox;

constexpr std::size_t kVolumeAnswer = 8 << 20, kBodyLimit = 4096;

Task<json::object> with_token(State& state, const Sandbox& volume) {
  CO_TRY(std::string token, co_await volume_token(state, volume));
  co_return json::object{{"volumeID", volume.id}, {"name", volume.metadata.at(control::kVolumeName)}, {"token", std::move(token)}};
}

Task<> create_volume(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  std::string name = r.text("name", 1, 128);
  CO_TRY_VOID(r.done());
  CO_TRY(const Sandbox volume, co_await make_volume(state, tenant_of(exchange), std::move(name)));
  CO_TRY(const json::object answer, co_await with_token(state, volume));
  co_return co_await reply(exchange, 201, answer);
}

Task<> list_volumes(State& state, http::Exchange& exchange) {
  CO_TRY(const std::vector<Sandbox> all, co_await volumes_of(state, tenant_of(exchange), ""));
  json::array out;
  for (const Sandbox& volume : all)
    out.push_back(json::object{{"volumeID", volume.id}, {"name", volume.metadata.at(control::kVolumeName)}});
  co_return co_await reply(exchange, 200, out);
}

Task<> get_volume(State& state, http::Exchange& exchange) {
  CO_TRY(const Sandbox volume, co_await find_volume(state, tenant_of(exchange), exchange.param("volume")));
  CO_TRY(const json::object answer, co_await with_token(state, volume));
  co_return co_await reply(exchange, 200, answer);
}

Task<> remove(State& state, http::Exchange& exchange) {
  CO_TRY(Sandbox volume, co_await find_volume(state, tenant_of(exchange), exchange.param("volume")));
  CO_TRY_VOID(co_await remove_volume(state, std::move(volume)));
  co_return co_await reply_empty(exchange);
}

// --- the content
Task<std::string> target_of(State& state, http::Exchange& exchange, std::string_view kind) {
  CO_TRY(Sandbox volume, co_await find_volume(state, tenant_of(exchange), exchange.param("volume")));
  const std::string& raw = exchange.target().raw;
  const std::size_t mark = raw.find('?');
  std::string target = fmt::format("/v1/sandboxes/{}/volume/{}{}", volume.id, kind, mark == raw.npos ? "" : raw.substr(mark));
  CO_TRY_VOID(co_await wake_volume(state, std::move(volume)));
  co_return target;
}

Task<http::Response> ask(State& state, http::Exchange& exchange, std::string_view kind) {
  http::Request request;
  request.method = exchange.method();
  CO_TRY(request.target, co_await target_of(state, exchange, kind));
  request.headers.set("Space-Tenant", tenant_of(exchange));
  if (exchange.has_body()) {
    CO_TRY(request.body, co_await exchange.read_body(kBodyLimit));
    request.headers.set("Content-Type", "application/json");
  }
  auto answer = co_await state.parts.node.forwarding().request(std::move(request), kVolumeAnswer);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return std::move(*answer);
}

Task<> pass_on(State& state, http::Exchange& exchange, std::string_view kind) {
  CO_TRY(const http::Response answer, co_await ask(state, exchange, kind));
  co_return co_await exchange.reply(http::json_response(answer.status, answer.body));
}

Task<> entry(State& state, http::Exchange& exchange) { return pass_on(state, exchange, "path"); }
Task<> make_folder(State& state, http::Exchange& exchange) { return pass_on(state, exchange, "dir"); }

Task<> remove_entry(State& state, http::Exchange& exchange) {
  CO_TRY_VOID(co_await ask(state, exchange, "path"));
  co_return co_await reply_empty(exchange);
}

Task<> list_folder(State& state, http::Exchange& exchange) {
  CO_TRY(const http::Response answer, co_await ask(state, exchange, "dir"));
  CO_TRY(const json::object body, parse_json_object(answer.body, kVolumeAnswer));
  const json::value* entries = body.if_contains("entries");
  if (!entries || !entries->is_array())
    co_return fail(ErrorKind::unavailable, "agent_not_answering", "the volume does not tell what is in it");
  co_return co_await reply(exchange, 200, *entries);
}

// Bytes pass as they come.
Task<> file(State& state, http::Exchange& exchange) {
  http::ProxyOptions options;
  CO_TRY(options.target, co_await target_of(state, exchange, "file"));
  options.drop_prefix = "Space-";
  for (const char* name : {"Authorization", "Cookie", "X-API-KEY"}) options.drop_headers.emplace_back(name);
  options.set_headers.set("Space-Tenant", tenant_of(exchange));
  options.other_words = [](const http::Response& answer) -> std::optional<http::Response> {
    return error_answer(http::error_from_response(answer.status, answer.body));
  };
  co_return co_await http::forward(exchange, state.parts.node.forwarding(), std::move(options));
}

}  // namespace

void add_volume_routes(State& state) {
  add(state, "POST", "/volumes", create_volume);
  add(state, "GET", "/volumes", list_volumes);
  add(state, "GET", "/volumes/{volume}", get_volume);
  add(state, "DELETE", "/volumes/{volume}", remove);
  add(state, "GET", "/volumecontent/{volume}/path", entry);
  add(state, "PATCH", "/volumecontent/{volume}/path", entry);
  add(state, "DELETE", "/volumecontent/{volume}/path", remove_entry);
  add(state, "GET", "/volumecontent/{volume}/dir", list_folder);
  add(state, "POST", "/volumecontent/{volume}/dir", make_folder);
  add(state, "GET", "/volumecontent/{volume}/file", file);
  add(state, "PUT", "/volumecontent/{volume}/file", file);
}

}  // namespace space::e2b
