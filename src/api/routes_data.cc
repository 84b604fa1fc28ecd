// The data plane: commands and files of a sandbox. Checked here (who asks, whose sandbox it is, whether it can answer), carried
// by node; bytes stream through with constant memory.
#include <fmt/format.h>

#include "api/answer.h"
#include "api/request.h"
#include "api/routes.h"
#include "api/waking.h"
#include "base/encoding.h"
#include "base/random.h"

namespace space::api {
namespace {

using control::Sandbox;
using control::SandboxState;

Result<> answers(const Sandbox& sandbox) {
  const auto no = [&](std::string_view code, std::string_view what, std::string next) {
    return fail(ErrorKind::conflict, code, fmt::format("sandbox {} {}", sandbox.id, what), std::move(next));
  };
  switch (sandbox.state) {
    case SandboxState::running:
      return {};
    case SandboxState::creating:
      return no("sandbox_not_ready", "is still being created", "wait for its create operation, then try again");
    case SandboxState::paused:
      return no("sandbox_paused", "is paused", fmt::format("resume it: POST /v1/sandboxes/{}/resume", sandbox.id));
    case SandboxState::suspended:
      return no("sandbox_suspended", "is suspended", fmt::format("wake it: POST /v1/sandboxes/{}/wake", sandbox.id));
    case SandboxState::stopped:
      return no("sandbox_stopped", "is stopped", fmt::format("start it: POST /v1/sandboxes/{}/start", sandbox.id));
    case SandboxState::failed:
      return no("sandbox_failed", "could not be created", "see its create operation; delete it and create another one");
    case SandboxState::ended:
      return no("sandbox_ended", fmt::format("has ended ({})", sandbox.end_reason), "create another one");
    case SandboxState::deleting:
    case SandboxState::deleted:
      break;
  }
  return no("sandbox_deleting", "is being deleted", "create another one");
}

// The path anew from its decoded segments, so that node sees what was checked here, and the query as it came.
std::string target_for_node(const http::Target& target) {
  std::string out;
  for (const std::string& segment : target.segments) out += "/" + percent_encode(segment);
  if (const std::size_t mark = target.raw.find('?'); mark != std::string::npos) out += target.raw.substr(mark);
  return out;
}

enum class Carried { short_answer, events, typed };  // typed: a body with any time between its pieces

Task<> carry(Services& services, http::Exchange& exchange, Carried what) {
  CO_TRY(std::string id, sandbox_id(exchange));
  const auto session = exchange.params.find("session");
  if (session != exchange.params.end() && !is_id(session->second))
    co_return fail(ErrorKind::not_found, "session_not_found", "this sandbox has no such command session",
                   "list its sessions: GET /v1/sandboxes/{id}/commands");
  const std::string& tenant = tenant_of(exchange);
  const bool by_token = tenant.empty();

  auto sandbox = by_token ? services.store.find_any_sandbox(id) : services.store.find_sandbox(tenant, id);
  auto found = co_await std::move(sandbox);
  // Whoever has no key learns nothing about which sandboxes exist.
  if (!found && by_token && found.error().kind == ErrorKind::not_found)
    co_return fail(ErrorKind::unauthenticated, "token_invalid", "this is no attach token of this command session",
                   "ask for a new one: POST …/commands/{session}/token");
  if (!found) co_return tl::unexpected(found.error());
  // One with a rest policy came to rest because nobody used it: now somebody does.
  if (!by_token && found->rest.any()) {
    CO_TRY(*found, co_await awake(services, *found));
  }
  const auto ready = answers(*found);
  if (!ready && by_token)
    CO_TRY_VOID(co_await services.node.may_attach(id, exchange.param("session"), exchange.attributes["attach_token"]));
  CO_TRY_VOID(ready);

  http::ProxyOptions options;
  options.target = target_for_node(exchange.target());
  options.event_stream = what == Carried::events;
  options.slow_body = what == Carried::typed;
  co_return co_await carry_to_node(services, exchange, std::move(options));
}

// The agent takes fields that it does not know, for the sake of later versions; clients are told about theirs.
void check_path(JsonReader& reader, std::string_view name) {
  const std::string encoded = std::string(name) + "_base64";
  const bool one = reader.has(name) != reader.has(encoded);
  (void)reader.optional_text(name, 4095);
  (void)reader.optional_text(encoded, 8192);
  if (!one) reader.reject(name, "must be given, or " + encoded + " in its place");
}

Result<> check_mkdir(const json::object& body) {
  JsonReader reader(body);
  check_path(reader, "path");
  (void)reader.optional_text("user", 256);
  (void)reader.optional_text("mode", 4);
  (void)reader.boolean("parents", true);
  return reader.done();
}

Result<> check_move(const json::object& body) {
  JsonReader reader(body);
  check_path(reader, "from");
  check_path(reader, "to");
  (void)reader.optional_text("user", 256);
  (void)reader.boolean("overwrite", false);
  (void)reader.boolean("parents", false);
  return reader.done();
}

Result<> check_empty(const json::object& body) {
  JsonReader reader(body);
  return reader.done();
}

Task<> plain(Services& services, http::Exchange& exchange) { return carry(services, exchange, Carried::short_answer); }
Task<> typed(Services& services, http::Exchange& exchange) { return carry(services, exchange, Carried::typed); }

// Of what has no parameters. The others' are checked where they are read.
Task<> bare(Services& services, http::Exchange& exchange) {
  CO_TRY_VOID(no_query(exchange));
  co_return co_await plain(services, exchange);
}

Task<> streaming(Services& services, http::Exchange& exchange) {
  ++services.counters.streams;
  auto result = co_await carry(services, exchange, Carried::events);
  --services.counters.streams;
  co_return result;
}

Task<> attach(Services& services, http::Exchange& exchange) {
  Query query(exchange.target());
  (void)query.text("after", 64);
  CO_TRY_VOID(query.done());
  co_return co_await streaming(services, exchange);
}

}  // namespace

void add_data_routes(Routes& routes) {
  const std::string commands = "/v1/sandboxes/{id}/commands";
  routes.add("POST", commands, Access::key, Repeat::kept, bare);
  routes.add("GET", commands, Access::key, Repeat::safe, bare);
  routes.add("GET", commands + "/{session}", Access::key, Repeat::safe, bare);
  routes.add("DELETE", commands + "/{session}", Access::key, Repeat::kept, bare);
  routes.add("POST", commands + "/{session}/token", Access::key, Repeat::kept, bare, check_empty);
  routes.add("GET", commands + "/{session}/attach", Access::attach, Repeat::safe, attach);
  routes.add("POST", commands + "/{session}/stdin", Access::attach, Repeat::streamed, typed);
  routes.add("POST", commands + "/{session}/signal", Access::attach, Repeat::kept, bare);
  routes.add("POST", commands + "/{session}/resize", Access::attach, Repeat::kept, bare);

  const std::string files = "/v1/sandboxes/{id}/files";
  routes.add("GET", files + "/content", Access::key, Repeat::safe, plain);
  routes.add("PUT", files + "/content", Access::key, Repeat::streamed, plain);
  routes.add("GET", files + "/stat", Access::key, Repeat::safe, plain);
  routes.add("GET", files + "/list", Access::key, Repeat::safe, plain);
  routes.add("POST", files + "/mkdir", Access::key, Repeat::kept, bare, check_mkdir);
  routes.add("POST", files + "/move", Access::key, Repeat::kept, bare, check_move);
  routes.add("DELETE", files, Access::key, Repeat::kept, plain);
  routes.add("GET", files + "/watch", Access::key, Repeat::safe, streaming);
}

}  // namespace space::api
