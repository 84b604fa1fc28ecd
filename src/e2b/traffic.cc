// The way of an SDK's requests into a sandbox: where they go, whether the sandbox can answer, and on to node, which checks the
// sandbox's token before the guest sees a byte. Port 49983 is the in-sandbox protocol; others are the guest's own servers.
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <fmt/format.h>

#include "base/digest.h"
#include "base/log.h"
#include "e2b/request.h"
#include "e2b/state.h"
#include "http/authorization.h"
#include "http/proxy.h"
#include "wire/file_signature.h"

namespace space::e2b {
namespace {

constexpr const char* kIdHeader = "E2b-Sandbox-Id";
constexpr const char* kPortHeader = "E2b-Sandbox-Port";
constexpr const char* kTrafficHeader = "E2b-Traffic-Access-Token";

std::string_view host_name(const http::Exchange& exchange) {
  std::string_view host = exchange.headers().get("Host");
  if (host.starts_with('[')) return host.substr(0, host.find(']') == std::string_view::npos ? host.size() : host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// Headers lead into sandboxes only where no page of a sandbox can be served from: else one sandbox's page could ask another's.
bool takes_headers(const State& state, std::string_view host) {
  if (host == "localhost" || host.starts_with("sandbox.")) return true;
  if (!state.options.domain.empty() && host == state.options.domain) return false;
  boost::system::error_code error;
  const std::string bare(host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host);
  asio::ip::make_address(bare, error);
  return !error;
}

std::optional<std::uint16_t> port_number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '0' || error != std::errc() || end != text.data() + text.size() || value > 65'535) return std::nullopt;
  return static_cast<std::uint16_t>(value);
}

bool has_headers(const http::Exchange& exchange) { return exchange.headers().has(kIdHeader) || exchange.headers().has(kPortHeader); }

// The label in front of ".<domain>": "" when the host is another one.
std::string_view label_of(const State& state, std::string_view host) {
  const std::string& domain = state.options.domain;
  if (domain.empty() || host.size() <= domain.size() + 1 || !host.ends_with(domain) || host[host.size() - domain.size() - 1] != '.')
    return {};
  const std::string_view label = host.substr(0, host.size() - domain.size() - 1);
  return label.find('.') == std::string_view::npos ? label : std::string_view();
}

Result<Destination> destination(const State& state, const http::Exchange& exchange) {
  const auto bad = [](const char* why) { return fail(ErrorKind::invalid_argument, "bad_destination", why); };
  Destination out;
  std::string_view id, port;
  if (has_headers(exchange) && takes_headers(state, host_name(exchange))) {
    id = exchange.headers().get(kIdHeader);
    port = exchange.headers().get(kPortHeader);
  } else {
    const std::string_view label = label_of(state, host_name(exchange));
    const std::size_t dash = label.find('-');
    port = label.substr(0, dash);
    id = dash == std::string_view::npos ? std::string_view() : label.substr(dash + 1);
  }
  const auto number = port_number(port);
  auto sandbox = sandbox_id(id);
  if (!number) return bad("the port of the sandbox is missing or is no port");
  if (!sandbox) return bad("the sandbox's id is missing or is no id");
  out.port = *number;
  out.sandbox = std::move(*sandbox);
  return out;
}

Task<> refuse(http::Exchange& exchange, int status, std::string message, const Destination& to) {
  const json::object body{{"sandboxId", to.sandbox}, {"message", message}, {"port", to.port}, {"code", status}};
  co_return co_await reply(exchange, status, body);
}

// The path and query as they came.
std::string tail(const http::Exchange& exchange) { return exchange.target().raw; }

Task<> to_envd(State& state, http::Exchange& exchange, const Found& found) {
  http::ProxyOptions options;
  options.target = fmt::format("/v1/sandboxes/{}/envd{}", found.sandbox.id, tail(exchange));
  options.event_stream = true;  // the in-sandbox protocol keeps time itself
  options.drop_prefix = "Space-";
  for (const char* name : {"Cookie", "X-API-KEY", kIdHeader, kPortHeader}) options.drop_headers.emplace_back(name);
  options.set_headers.set("Space-Access", found.settings->secure ? "token" : "open");
  co_return co_await http::forward(exchange, state.parts.node.forwarding(), std::move(options));
}

// What E2B says where node, in words of its own, tells of a server that cannot be spoken with; else nullptr.
const char* why_unreachable(const http::Response& answer, std::uint16_t port) {
  const auto problem = parse_json_object(answer.body, 4096);
  if (!problem) return nullptr;
  const json::value *code = problem->if_contains("code"), *detail = problem->if_contains("detail");
  if (!code || !detail || !detail->is_string()) return nullptr;
  const std::string_view words = detail->get_string();
  if (*code == json::value("port_closed") && words == fmt::format("nothing in the sandbox listens on port {}", port))
    return "The sandbox is running but port is not open";
  if (*code == json::value("port_no_tls") && words.starts_with(fmt::format("the server on port {} began no TLS connection", port)))
    return "The sandbox is running but port does not speak TLS, which httpsPorts says it does";
  return nullptr;
}

std::string masked(std::string host, std::uint16_t port) {
  constexpr std::string_view kPort = "${PORT}";
  if (const std::size_t at = host.find(kPort); at != std::string::npos) host.replace(at, kPort.size(), std::to_string(port));
  return host;
}

// A server of the guest's. node checks the traffic token again; here it is asked so that the answer has E2B's form.
Task<> to_port(State& state, http::Exchange& exchange, const Found& found, const Destination& to) {
  http::ProxyOptions options;
  options.drop_prefix = "Space-";
  if (found.settings->public_traffic) {
    options.set_headers.set("Space-Port-Access", "public");
  } else {
    CO_TRY(const Tokens tokens, co_await tokens_of(state, found.sandbox));
    if (!equal_constant_time(exchange.headers().get(kTrafficHeader), tokens.traffic))
      co_return co_await refuse(exchange, 403, "The traffic access token is missing or wrong", to);
    options.set_headers.set("Space-Traffic-Token", tokens.traffic);
  }
  // A key of this server's that a client sends along is not the guest's to see.
  if (std::string secret = http::bearer(exchange.headers()); !secret.empty()) {
    const auto ours = co_await state.parts.authenticate(std::move(secret), control::Scope::read);
    if (ours) options.drop_headers.emplace_back("Authorization");
  }
  const std::string host(exchange.headers().get("Host"));
  const std::string& mask = found.settings->mask_host;
  options.set_headers.set("Space-Port-Host", mask.empty() ? host : masked(mask, to.port));
  http::say_who_asks(exchange, options);
  if (speaks_tls(*found.settings, to.port)) options.set_headers.set("Space-Port-Tls", "yes");
  for (const char* name : {"X-API-KEY", kIdHeader, kPortHeader, kTrafficHeader}) options.drop_headers.emplace_back(name);
  options.target = fmt::format("/v1/sandboxes/{}/ports/{}{}", found.sandbox.id, to.port, tail(exchange));
  options.upgrade = true;
  options.event_stream = true;
  options.other_words = [&to](const http::Response& answer) -> std::optional<http::Response> {
    const char* message = why_unreachable(answer, to.port);
    if (!message) return std::nullopt;
    const json::object body{{"sandboxId", to.sandbox}, {"message", message}, {"port", to.port}, {"code", 502}};
    return http::json_response(502, json::serialize(body));
  };
  co_return co_await http::forward(exchange, state.parts.node.ports(), std::move(options));
}

// Nothing: there is none, or it rests and traffic does not wake it.
Task<std::optional<Found>> target_sandbox(State& state, std::string id) {
  constexpr std::chrono::seconds kLongestRest{90};
  while (state.moving.contains(id)) co_await state.moved.wait();
  (void)co_await state.parts.engine.wait_for_rest(id, kLongestRest);  // one that comes to rest by its policy just now
  auto sandbox = co_await state.parts.store.find_any_sandbox(id);
  if (!sandbox && sandbox.error().kind == ErrorKind::not_found) co_return std::nullopt;
  if (!sandbox) co_return fail(std::move(sandbox).error());
  if ((!is_running(sandbox->state) && !is_paused(sandbox->state)) || control::is_volume(*sandbox)) co_return std::nullopt;
  CO_TRY(const auto settings, co_await settings_of(state, id));
  Found found{std::move(*sandbox), settings, false};
  found.running = is_running(found.sandbox.state);
  // One of the native API's that came to rest by its policy wakes by it too.
  const bool by_policy = found.sandbox.rest.any() && found.sandbox.state != control::SandboxState::stopped;
  if (!found.running && !settings->auto_resume && !by_policy) co_return std::nullopt;
  co_return found;
}

// Who has not the token wakes nobody, nor gives a sandbox more time: that of the in-sandbox protocol, or a file's signed URL, on its port,
// and the traffic token on the others.
Task<bool> may_wake(State& state, const http::Exchange& exchange, const Found& found, std::uint16_t port) {
  const bool envd = port == kEnvdPort;
  if (envd ? !found.settings->secure : found.settings->public_traffic) co_return true;
  CO_TRY(const Tokens tokens, co_await tokens_of(state, found.sandbox));
  const http::Headers& headers = exchange.headers();
  if (!envd) co_return equal_constant_time(headers.get(kTrafficHeader), tokens.traffic);
  if (headers.has("X-Access-Token")) co_return equal_constant_time(headers.get("X-Access-Token"), tokens.envd);
  const auto& path = exchange.target().segments;
  co_return path.size() == 1 && path[0] == "files" && wire::is_signed(exchange, tokens.envd);
}

// The request waits for it.
Task<Found> awake(State& state, Found found) {
  const auto settings = found.settings;
  CO_TRY(found, co_await wake(state, std::move(found)));
  if (!settings->auto_resume) co_return found;  // its time is its own
  constexpr std::int64_t kLeast_s = 300;
  const std::int64_t ends_ms = state.parts.clock.wall_ms() + std::max(settings->timeout_s, kLeast_s) * 1000;
  CO_TRY(found.sandbox, co_await state.parts.engine.set_deadline(found.sandbox.tenant, found.sandbox.id, ends_ms, false));
  co_return found;
}

}  // namespace

bool is_traffic(const State& state, const http::Exchange& exchange) {
  const std::string_view host = host_name(exchange);
  if (has_headers(exchange) && takes_headers(state, host)) return true;
  const std::string_view label = label_of(state, host);
  return !label.empty() && label[0] >= '0' && label[0] <= '9' && label.find('-') != std::string_view::npos;
}

asio::awaitable<bool> is_ours(State& state, http::Exchange& exchange) {
  if (has_headers(exchange) && takes_headers(state, host_name(exchange))) co_return true;
  const auto to = destination(state, exchange);
  if (!to || to->port == kEnvdPort) co_return true;  // what is wrong is refused in E2B's words
  const auto settings = co_await settings_of(state, to->sandbox);
  co_return settings && (*settings)->made_here;
}

Task<> carry_traffic(State& state, http::Exchange& exchange) {
  const auto to = destination(state, exchange);
  if (!to) co_return co_await exchange.reply(error_answer(to.error()));
  auto found = co_await target_sandbox(state, to->sandbox);
  if (!found) co_return co_await exchange.reply(error_answer(found.error()));
  if (!*found) co_return co_await refuse(exchange, 502, "The sandbox was not found", *to);
  if (!(*found)->running) {
    const auto may = co_await may_wake(state, exchange, **found, to->port);
    if (!may) co_return co_await exchange.reply(error_answer(may.error()));
    if (!*may)
      co_return co_await refuse(
          exchange, 403, to->port == kEnvdPort ? "The access token is missing or wrong" : "The traffic access token is missing or wrong",
          *to);
    auto woken = co_await awake(state, std::move(**found));
    if (!woken) co_return co_await exchange.reply(error_answer(woken.error()));
    **found = std::move(*woken);
  }
  Result<> done;
  if (to->port == kEnvdPort)
    done = co_await to_envd(state, exchange, **found);
  else
    done = co_await to_port(state, exchange, **found, *to);
  if (!done && !exchange.started() && done.error().kind != ErrorKind::cancelled) {
    log::warn("e2b.traffic_failed", {{"sandbox", to->sandbox}, {"error", done.error()}});
    co_return co_await refuse(exchange, 502, "The sandbox is running but does not answer", *to);
  }
  co_return done;
}

}  // namespace space::e2b
