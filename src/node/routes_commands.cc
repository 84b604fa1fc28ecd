#include <fmt/format.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "node/attach.h"
#include "node/access.h"
#include "node/relay.h"
#include "node/routes.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using SandboxPtr = std::shared_ptr<Sandbox>;

constexpr std::size_t kCommandLimit = 512 << 10;
constexpr std::size_t kTidySessions = 1024;  // more: those that the agent has forgotten go first
constexpr std::int64_t kDay = 24 * 60 * 60 * 1000;

Result<wire::PtySize> read_pty(const json::object& body) {
  JsonReader in(body, "pty");
  wire::PtySize size;
  size.rows = static_cast<std::uint16_t>(in.number("rows", 1, 4096, 24));
  size.cols = static_cast<std::uint16_t>(in.number("cols", 1, 4096, 80));
  TRY_VOID(in.done());
  return size;
}

bool has_nul(std::string_view text) { return text.find('\0') != text.npos; }

Result<wire::ProcessSpec> read_command(const json::object& body) {
  JsonReader in(body);
  wire::ProcessSpec spec;
  spec.session = new_id();
  spec.argv = in.texts("argv", 1024, 128 << 10);
  spec.shell = in.optional_text("command", 128 << 10);
  spec.cwd = in.text("cwd", 0, 4096, "");
  spec.env = in.text_map("env", 256, 64 << 10);
  spec.user = in.text("user", 0, 64, "");
  spec.stdin_open = in.boolean("stdin", false);
  const json::object* pty = in.object("pty");
  if (auto limit = in.optional_number("time_limit_ms", 1, 30 * kDay)) spec.time_limit = milliseconds(*limit);
  if (auto grace = in.optional_number("grace_ms", 0, 60'000)) spec.grace = milliseconds(*grace);
  if (spec.shell.has_value() == !spec.argv.empty()) in.reject("argv", "or command must be given, and not both");
  if (spec.shell && (spec.shell->empty() || has_nul(*spec.shell))) in.reject("command", "must be a text without NUL");
  if (std::any_of(spec.argv.begin(), spec.argv.end(), has_nul) || (!spec.argv.empty() && spec.argv[0].empty()))
    in.reject("argv", "must hold texts without NUL, the first not empty");
  for (const auto& [name, value] : spec.env)
    if (name.empty() || has_nul(name) || name.find('=') != name.npos || has_nul(value))
      in.reject("env", "must hold names without '=' and texts without NUL");
  if (has_nul(spec.cwd) || has_nul(spec.user)) in.reject("cwd", "and user must not hold NUL");
  TRY_VOID(in.done());
  if (pty) {
    TRY(spec.pty, read_pty(*pty));
    spec.stdin_open = true;  // a terminal is read by whoever sits at it
  }
  return spec;
}

Task<std::vector<wire::ProcessInfo>> list_processes(RouteParts& parts, SandboxPtr sandbox) {
  CO_TRY(const auto agent, sandbox->agent());
  const std::uint64_t mark = sandbox->sessions.mark();
  CO_TRY(auto listed, co_await ask_agent(sandbox->machine, agent->list(), parts.agent_patience, "list its processes"));
  for (wire::ProcessInfo& info : listed)
    if (info.process <= sandbox->record.inherited) info.session = inherited_session(sandbox->record.id, info.session);
  sandbox->sessions.reconcile(listed, mark);
  co_return listed;
}

// After a restart of node the sessions are known to the agent alone; so an unknown one is looked up there once.
Task<std::uint32_t> process_of(RouteParts& parts, SandboxPtr sandbox, std::string session) {
  if (auto known = sandbox->sessions.process(session)) co_return *known;
  if (is_id(session)) CO_TRY_VOID(co_await list_processes(parts, sandbox));
  co_return sandbox->sessions.process(session);
}

json::object session_json(const wire::ProcessInfo& info, std::uint64_t epoch) {
  json::object out{
      {"session", info.session}, {"process", info.process}, {"state", info.state}, {"pid", info.pid}, {"argv", json::value_from(info.argv)},
      {"user", info.user},       {"cwd", info.cwd},         {"pty", info.pty}};
  if (info.started_ms > 0 && info.started_ms < (std::int64_t{1} << 45)) out["started_at"] = rfc3339(info.started_ms);
  out["window"] = json::object{{"first", position_text(epoch, info.first_sequence)}, {"last", position_text(epoch, info.last_sequence)}};
  if (info.exit)
    out["exit"] = json::object{{"code", info.exit->code},
                               {"signal", info.exit->signal},
                               {"timed_out", info.exit->timed_out},
                               {"core_dumped", info.exit->core_dumped}};
  return out;
}

json::object token_json(const Sandbox& sandbox, const std::string& session, const AttachToken& token) {
  return {{"session", session},
          {"attach_url", fmt::format("/v1/sandboxes/{}/commands/{}/attach", sandbox.record.id, session)},
          {"token", token.token},
          {"token_expires_at", rfc3339(token.expires_ms)}};
}

Task<> create_command(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, tenant_sandbox(parts.sandboxes, exchange));
  CO_TRY(const json::object body, co_await read_object(exchange, kCommandLimit));
  CO_TRY(const wire::ProcessSpec spec, read_command(body));
  CO_TRY(const auto agent, sandbox->agent());
  if (sandbox->sessions.size() >= kTidySessions) CO_TRY_VOID(co_await list_processes(parts, sandbox));
  CO_TRY(const std::uint32_t process, co_await ask_agent(sandbox->machine, agent->create(spec), parts.agent_patience, "make the command"));
  CO_TRY_VOID(sandbox->sessions.add(spec.session, process));
  const AttachToken token = parts.tokens.attach_token(sandbox->record, spec.session, system_clock().wall_ms());
  json::object answer = token_json(*sandbox, spec.session, token);
  answer["process"] = process;
  co_return co_await reply_json(exchange, 201, std::move(answer));
}

Task<> list_processes(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, tenant_sandbox(parts.sandboxes, exchange));
  CO_TRY(const auto listed, co_await list_processes(parts, sandbox));
  json::array all;
  for (const wire::ProcessInfo& info : listed) {
    const auto known = sandbox->sessions.process(info.session);
    if (known && *known == info.process) all.push_back(session_json(info, sandbox->record.epoch));
  }
  json::object body{{"commands", std::move(all)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> get_command(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, tenant_sandbox(parts.sandboxes, exchange));
  const std::string session = exchange.param("session");
  CO_TRY(const std::uint32_t process, co_await process_of(parts, sandbox, session));
  CO_TRY(const auto agent, sandbox->agent());
  CO_TRY(wire::ProcessInfo info, co_await ask_agent(sandbox->machine, agent->get(process), parts.agent_patience, "describe the command"));
  info.session = session;
  info.process = process;
  co_return co_await reply_json(exchange, 200, session_json(info, sandbox->record.epoch));
}

Task<> renew(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, tenant_sandbox(parts.sandboxes, exchange));
  const std::string session = exchange.param("session");
  CO_TRY_VOID(co_await process_of(parts, sandbox, session));
  const AttachToken token = parts.tokens.attach_token(sandbox->record, session, system_clock().wall_ms());
  co_return co_await reply_json(exchange, 200, token_json(*sandbox, session, token));
}

// For the api, before it keeps or tells anything for an attach token.
Task<> access(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY_VOID(session_sandbox(parts.sandboxes, parts.tokens, exchange));
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

Task<> follow(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, session_sandbox(parts.sandboxes, parts.tokens, exchange));
  CO_TRY(const std::uint32_t process, co_await process_of(parts, sandbox, exchange.param("session")));
  // The header goes before the query: a client that reconnects asks with the same URL and the id of the last event it saw.
  std::string from(exchange.headers().get("Last-Event-ID"));
  if (from.empty()) from = exchange.target().query_value("after").value_or("");
  if (from.empty() || from == "0") co_return co_await attach(exchange, sandbox, process, 0);
  const auto position = parse_position(from);
  if (!position)
    co_return fail(ErrorKind::invalid_argument, "invalid_event_id", "an event id looks like 1.42",
                   "send the id of the last event as it was received");
  if (position->epoch == sandbox->record.epoch) co_return co_await attach(exchange, sandbox, process, position->sequence);
  CO_TRY(const auto agent, sandbox->agent());
  CO_TRY(const wire::ProcessInfo info,
         co_await ask_agent(sandbox->machine, agent->get(process), parts.agent_patience, "describe the command"));
  co_return co_await exchange.reply(outside_window(sandbox->record.epoch, info.first_sequence, info.last_sequence));
}

Task<> stdin_bytes(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, session_sandbox(parts.sandboxes, parts.tokens, exchange));
  CO_TRY(const std::uint32_t process, co_await process_of(parts, sandbox, exchange.param("session")));
  exchange.set_read_timeout(milliseconds(0));  // a person may think for as long as they like
  AgentTarget target(fmt::format("/v1/processes/{}/stdin", process));
  CO_TRY_VOID(target.copy(exchange, {"close"}));
  co_return co_await relay_up(exchange, sandbox, "POST", std::move(target), "write to the command");
}

Task<> signal(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, session_sandbox(parts.sandboxes, parts.tokens, exchange));
  CO_TRY(const std::uint32_t process, co_await process_of(parts, sandbox, exchange.param("session")));
  CO_TRY(const json::object body, co_await read_object(exchange, 4 << 10));
  JsonReader in(body);
  const std::string name = in.text("signal", 1, 16);
  if (!std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }))
    in.reject("signal", "must be a name such as TERM, INT or KILL");
  CO_TRY_VOID(in.done());
  CO_TRY(const auto agent, sandbox->agent());
  CO_TRY_VOID(co_await ask_agent(sandbox->machine, agent->signal(process, name), parts.agent_patience, "send the signal"));
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

Task<> resize(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, session_sandbox(parts.sandboxes, parts.tokens, exchange));
  CO_TRY(const std::uint32_t process, co_await process_of(parts, sandbox, exchange.param("session")));
  CO_TRY(const json::object body, co_await read_object(exchange, 4 << 10));
  JsonReader in(body);
  wire::PtySize size;
  size.rows = static_cast<std::uint16_t>(in.number("rows", 1, 4096));
  size.cols = static_cast<std::uint16_t>(in.number("cols", 1, 4096));
  CO_TRY_VOID(in.done());
  CO_TRY(const auto agent, sandbox->agent());
  CO_TRY_VOID(co_await ask_agent(sandbox->machine, agent->resize(process, size), parts.agent_patience, "resize the terminal"));
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

Task<> kill(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const SandboxPtr sandbox, tenant_sandbox(parts.sandboxes, exchange));
  CO_TRY(const std::uint32_t process, co_await process_of(parts, sandbox, exchange.param("session")));
  CO_TRY(const auto agent, sandbox->agent());
  const std::string name = "KILL";
  CO_TRY_VOID(co_await ask_agent(sandbox->machine, agent->signal(process, name), parts.agent_patience, "kill the command"));
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

}  // namespace

void add_command_routes(http::Router& router, RouteParts& parts) {
  const std::string all = "/v1/sandboxes/{id}/commands", one = all + "/{session}";
  router.add("POST", all, [&parts](http::Exchange& e) { return create_command(e, parts); });
  router.add("GET", all, [&parts](http::Exchange& e) { return list_processes(e, parts); });
  router.add("GET", one, [&parts](http::Exchange& e) { return get_command(e, parts); });
  router.add("DELETE", one, [&parts](http::Exchange& e) { return kill(e, parts); });
  router.add("POST", one + "/token", [&parts](http::Exchange& e) { return renew(e, parts); });
  router.add("GET", one + "/access", [&parts](http::Exchange& e) { return access(e, parts); });
  router.add("GET", one + "/attach", [&parts](http::Exchange& e) { return follow(e, parts); });
  router.add("POST", one + "/stdin", [&parts](http::Exchange& e) { return stdin_bytes(e, parts); });
  router.add("POST", one + "/signal", [&parts](http::Exchange& e) { return signal(e, parts); });
  router.add("POST", one + "/resize", [&parts](http::Exchange& e) { return resize(e, parts); });
}

}  // namespace space::node
