#include "agent/routes.h"

#include <charconv>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/envd.h"

namespace space::agent {
namespace {

constexpr std::size_t kInitLimit = 2 << 20;

bool is_host(const http::Peer& peer) {
  if (peer.credentials) return peer.credentials->uid == 0 || peer.credentials->uid == ::geteuid();
  return peer.address == wire::kHostAddress || peer.address == wire::kHostAddress6 ||
         peer.address == fmt::format("::ffff:{}", wire::kHostAddress);
}

Task<> refuse_strangers(Agent& agent, http::Exchange& exchange, const http::Handler& next) {
  if (!agent.allow_any_peer && !is_host(exchange.peer()))
    co_return fail(ErrorKind::permission_denied, "peer_refused", "the agent answers to the host's end of the network only");
  co_return co_await next(exchange);
}

Task<> get_health(Agent& agent, http::Exchange& exchange) {
  json::object body{
      {"version", SPACE_VERSION}, {"protocol", wire::kAgentProtocol}, {"boot_id", agent.boot_id}, {"loads", agent.loads.count()}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> post_init(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const json::object object, co_await read_json(exchange, kInitLimit));
  CO_TRY(InitRequest request, read_init(object));
  request.peer_port = exchange.peer().port;
  json::object answer{{"nonce", request.nonce}};
  CO_TRY_VOID(agent.loads.init(std::move(request)));
  co_return co_await reply_json(exchange, 200, std::move(answer));
}

// Without a load: for commands from now on.
Task<> put_environment(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const json::object object, co_await read_json(exchange, kInitLimit));
  JsonReader reader(object);
  reader.ignore_unknown();
  Environment env = reader.text_map("env", 4096, 128 << 10);
  CO_TRY_VOID(reader.done());
  CO_TRY_VOID(check_environment(env));
  agent.settings.sandbox_env = std::move(env);
  co_return co_await reply_json(exchange, 200, {});
}

Task<> post_freeze(Agent& agent, http::Exchange& exchange) {
  CO_TRY_VOID(co_await exchange.read_body(4096));
  CO_TRY_VOID(co_await agent.processes.user_group().freeze());
  co_return co_await reply_json(exchange, 200, {});
}

// Everything that was written in memory goes to the disk. May take as long as the disk does.
Task<> post_sync(Agent& agent, http::Exchange& exchange) {
  CO_TRY_VOID(co_await exchange.read_body(4096));
  auto work = []() -> Result<> { return ::sync(), Result<>{}; };
  CO_TRY_VOID(co_await agent.pool.run(work));
  co_return co_await reply_json(exchange, 200, {});
}

}  // namespace

Result<std::uint64_t> query_number(const http::Target& target, std::string_view name, std::uint64_t most, std::uint64_t absent) {
  const auto text = target.query_value(name);
  if (!text) return absent;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || text->empty() || value > most)
    return fail(ErrorKind::invalid_argument, "invalid_query", fmt::format("{} must be a whole number up to {}", name, most),
                "send such a number");
  return value;
}

Result<bool> query_flag(const http::Target& target, std::string_view name) {
  TRY(const std::uint64_t value, query_number(target, name, 1, 0));
  return value == 1;
}

Task<json::object> read_json(http::Exchange& exchange, std::size_t limit) {
  CO_TRY(const std::string body, co_await exchange.read_body(limit));
  co_return parse_json_object(body, limit);
}

Task<> reply_json(http::Exchange& exchange, int status, json::object body) {
  http::Response response = http::json_response(status, json::serialize(body));
  co_return co_await exchange.reply(std::move(response));
}

void add_routes(http::Router& router, Agent& agent) {
  router.use([&agent](http::Exchange& x, const http::Handler& next) { return refuse_strangers(agent, x, next); });
  router.add("GET", "/v1/health", [&agent](http::Exchange& x) { return get_health(agent, x); });
  router.add("POST", "/v1/init", [&agent](http::Exchange& x) { return post_init(agent, x); });
  router.add("PUT", "/v1/environment", [&agent](http::Exchange& x) { return put_environment(agent, x); });
  router.add("POST", "/v1/freeze", [&agent](http::Exchange& x) { return post_freeze(agent, x); });
  router.add("POST", "/v1/sync", [&agent](http::Exchange& x) { return post_sync(agent, x); });
  add_process_routes(router, agent);
  add_file_routes(router, agent);
  add_envd_routes(router, agent);
  add_connect_routes(router, agent);
  add_volume_routes(router, agent);
}

}  // namespace space::agent
