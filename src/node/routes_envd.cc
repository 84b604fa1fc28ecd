// E2B's in-sandbox protocol on its way to the agent: /v1/sandboxes/{id}/envd followed by the path that the client asked for. The
// token, or a file's signature, is checked here before one byte reaches the guest; what is not part of the protocol gets no further.
// Errors are E2B's own: {"code","message"}, and 502 for a sandbox that cannot answer.
#include <fmt/format.h>

#include <array>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <charconv>

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/random.h"
#include "http/proxy.h"
#include "node/access.h"
#include "node/open_stream.h"
#include "node/routes.h"
#include "wire/file_signature.h"

namespace space::node {
namespace {

using SandboxPtr = std::shared_ptr<Sandbox>;
using Clock = std::chrono::steady_clock;

enum class Check { none, token, token_or_signature };
struct Method {
  std::string_view method, path;
  Check check;
  bool streams;  // no time limit between the pieces of its answer
};

constexpr std::string_view kProcess = "/process.Process/", kFilesystem = "/filesystem.Filesystem/";
constexpr std::array kPlain = {Method{"GET", "/health", Check::none, false},
                               Method{"GET", "/metrics", Check::token, false},
                               Method{"GET", "/envs", Check::token, false},
                               Method{"GET", "/logs", Check::token, false},
                               Method{"GET", "/files", Check::token_or_signature, false},
                               Method{"HEAD", "/files", Check::token_or_signature, false},
                               Method{"POST", "/files", Check::token_or_signature, false}};
constexpr std::array kProcessMethods = {"Start", "Connect", "StreamInput", "SendInput", "CloseStdin", "List", "SendSignal", "Update"};
constexpr std::array kFilesystemMethods = {"Stat",          "MakeDir",          "Move",         "ListDir", "Remove", "WatchDir",
                                           "CreateWatcher", "GetWatcherEvents", "RemoveWatcher"};

std::optional<Method> find_method(std::string_view method, std::string_view path) {
  for (const Method& one : kPlain)
    if (one.method == method && one.path == path) return one;
  const auto known = [](std::string_view name, const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const bool process = path.starts_with(kProcess) && known(path.substr(kProcess.size()), kProcessMethods);
  const bool filesystem = path.starts_with(kFilesystem) && known(path.substr(kFilesystem.size()), kFilesystemMethods);
  if (method != "POST" || (!process && !filesystem)) return std::nullopt;
  const bool streams =
      path.ends_with("/Start") || path.ends_with("/Connect") || path.ends_with("/StreamInput") || path.ends_with("/WatchDir");
  return Method{"POST", path, Check::token, streams};
}

Task<> answer(http::Exchange& exchange, int status, json::object body) {
  body["code"] = status;
  http::Response response = http::json_response(status, json::serialize(body));
  co_return co_await exchange.reply(std::move(response));
}

tl::unexpected<Error> refused(const char* why) { return fail(ErrorKind::unauthenticated, "token_invalid", why); }

bool has_expired(std::string_view expiry) {
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(expiry.data(), expiry.data() + expiry.size(), seconds);
  return error != std::errc() || end != expiry.data() + expiry.size() || seconds < system_clock().wall_ms() / 1000;
}

Result<> check(const http::Exchange& exchange, const Method& method, const TokenKey& key, const SandboxRecord& record) {
  if (method.check == Check::none || exchange.headers().get("Space-Access") == "open") return {};
  const http::Headers& headers = exchange.headers();
  if (headers.count("X-Access-Token") > 1) return refused("unauthorized access, the access token is there twice");
  if (headers.has("X-Access-Token")) {
    if (key.is_token(headers.get("X-Access-Token"), TokenKey::kEnvd, record)) return {};
    return refused("unauthorized access, the access token of this sandbox is another one");
  }
  if (method.check == Check::token) return refused("unauthorized access, please provide a valid access token");
  const http::Target& target = exchange.target();
  const std::string expiry = target.query_value("signature_expiration").value_or("");
  if (target.query_value("signature").value_or("").empty()) return refused("missing signature query parameter");
  if (!wire::is_signed(exchange, key.token(TokenKey::kEnvd, record))) return refused("invalid signature");
  if (!expiry.empty() && has_expired(expiry)) return refused("signature is already expired");
  return {};
}

Task<> relay(http::Exchange& exchange, SandboxPtr sandbox, std::string target, const Method& method, asio::any_io_executor executor) {
  using namespace asio::experimental::awaitable_operators;
  CO_TRY(const auto agent, sandbox->agent());
  if (method.path.ends_with("/Start")) sandbox->sessions.others_start();
  http::ProxyOptions options;
  options.target = std::move(target);
  options.event_stream = method.streams;
  options.slow_body = method.path.ends_with("/StreamInput");
  options.answer_headers = {"Content-Type", "Content-Encoding", "Content-Disposition", "Content-Range", "Accept-Ranges", "ETag",
                            "Vary",         "Accept-Post"};
  options.drop_prefix = "Space-";
  for (const char* name : {"X-Access-Token", "X-API-KEY", "Cookie", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2b-Traffic-Access-Token"})
    options.drop_headers.emplace_back(name);
  Cut cut(sandbox, executor);
  auto first = co_await (http::forward(exchange, agent->http(), std::move(options)) || cut.wait());
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return fail(vm_gone());
}

Task<> serve(http::Exchange& exchange, RouteParts& parts, std::string path) {
  const auto method = find_method(exchange.method(), path);
  if (!method) {
    json::object body{{"message", "not found"}, {"path", path}};
    co_return co_await answer(exchange, 404, std::move(body));
  }
  const std::string& id = exchange.param("id");
  const SandboxPtr sandbox = is_id(id) ? parts.sandboxes.find(id) : nullptr;
  const auto no_sandbox = [&](const char* message) { return json::object{{"sandboxId", id}, {"message", message}}; };
  if (!sandbox) co_return co_await answer(exchange, 502, no_sandbox("The sandbox was not found"));
  if (auto allowed = check(exchange, *method, parts.tokens, sandbox->record); !allowed) {
    json::object body{{"message", allowed.error().message}};
    co_return co_await answer(exchange, 401, std::move(body));
  }
  // To ask for its agent is to use it: not before that is allowed.
  if (!sandbox->agent()) co_return co_await answer(exchange, 502, no_sandbox("The sandbox was not found"));
  std::string target = path;
  if (const std::size_t mark = exchange.target().raw.find('?'); mark != std::string::npos) target += exchange.target().raw.substr(mark);
  auto done = co_await relay(exchange, sandbox, std::move(target), *method, parts.executor);
  if (done || exchange.started() || done.error().kind == ErrorKind::cancelled)
    co_return done;  // an error after the start cuts the connection
  log::warn("envd.failed", {{"sandbox", id}, {"path", path}, {"error", done.error()}});
  co_return co_await answer(exchange, 502,
                            no_sandbox(sandbox->agent() ? "The sandbox is running but does not answer" : "The sandbox was not found"));
}

Task<> give_tokens(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const auto sandbox, tenant_sandbox(parts.sandboxes, exchange));
  json::object body{{"envd", parts.tokens.token(TokenKey::kEnvd, sandbox->record)},
                    {"traffic", parts.tokens.token(TokenKey::kTraffic, sandbox->record)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

}  // namespace

void add_envd_routes(http::Router& router, RouteParts& parts) {
  router.add("GET", "/v1/sandboxes/{id}/tokens", [&parts](http::Exchange& e) { return give_tokens(e, parts); });
  for (const char* method : {"GET", "POST"}) {
    router.add(method, "/v1/sandboxes/{id}/envd/{path}", [&parts](http::Exchange& e) { return serve(e, parts, "/" + e.param("path")); });
    router.add(method, "/v1/sandboxes/{id}/envd/{service}/{method}",
               [&parts](http::Exchange& e) { return serve(e, parts, fmt::format("/{}/{}", e.param("service"), e.param("method"))); });
  }
}

}  // namespace space::node
