#include "api/ports.h"

#include <optional>

#include <fmt/format.h>

#include "api/keyring.h"
#include "api/observed.h"
#include "api/waking.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "http/authorization.h"
#include "http/proxy.h"
#include "wire/agent_protocol.h"
#include "wire/ports.h"

namespace space::api {
namespace {

constexpr const char* kE2bToken = "E2b-Traffic-Access-Token";  // the same token, as E2B's clients send it

Error no_such_port() {
  return {ErrorKind::not_found, "port_not_found", "there is nothing at this address",
          "write /v1/sandboxes/{id}/ports/{port}/… with a port from 1 to 65535"};
}

// Whoever may not see a sandbox learns nothing about it.
tl::unexpected<Error> refused() {
  return fail(ErrorKind::unauthenticated, "key_missing", "this port is private: an API key or a traffic token is needed",
              "send \"Authorization: Bearer sk_…\", or make the port public");
}

class Ports {
 public:
  Ports(Services& services, std::string domain) : services_(services), domain_(std::move(domain)) {}

  // nullopt: not for us.
  std::optional<Result<wire::PortAddress>> address_of(const http::Exchange& exchange) const {
    const std::string_view host = exchange.headers().get("Host");
    const std::string& raw = exchange.target().raw;
    if (auto by_host = wire::port_of_host(host, domain_); by_host && by_host->port != wire::kAgentPort) {
      by_host->target = raw;
      return Result<wire::PortAddress>(std::move(*by_host));
    }
    if (!wire::is_port_path(raw)) return std::nullopt;
    if (auto by_path = wire::port_of_path(raw)) return Result<wire::PortAddress>(std::move(*by_path));
    return Result<wire::PortAddress>(fail(no_such_port()));
  }

  Task<> serve(http::Exchange& raw, Result<wire::PortAddress> address) {
    Observed exchange(raw, new_id());
    const std::int64_t began_us = services_.clock.monotonic_us();
    Result<> result;
    if (!address)
      result = fail(address.error());
    else if (address->port == wire::kAgentPort)
      result = fail(no_such_port());  // the agent's own, which is no server of the guest's
    else
      result = co_await carry(exchange, *address);
    Result<> answered = result;
    int status = exchange.status();
    if (!result && !raw.started()) {
      const http::Response problem = http::problem(result.error());
      status = problem.status;
      answered = co_await raw.reply(problem);
    }
    ++services_.counters.requests[{"PORT", status}];
    log::info("port.request", {{"request", exchange.request_id()},
                               {"sandbox", address ? address->sandbox : std::string()},
                               {"port", address ? address->port : 0},
                               {"method", exchange.method()},
                               {"status", status},
                               {"us", services_.clock.monotonic_us() - began_us},
                               {"error", result ? std::string() : describe(result.error())}});
    co_return answered;
  }

 private:
  Task<> carry(Observed& exchange, wire::PortAddress address) {
    http::ProxyOptions options;
    options.drop_prefix = "Space-";
    std::optional<control::Key> key;
    const std::string secret = http::bearer(exchange.headers());
    if (secret.starts_with("sk_") || secret.starts_with("e2b_")) {
      auto found = co_await services_.keys.authenticate(exchange.headers());
      if (found)
        key = std::move(*found);
      else if (!co_await is_public(address))  // the server behind a public port may have keys of its own that begin alike
        co_return tl::unexpected(found.error());
      else if (found.error().code != "key_unknown" && found.error().code != "key_malformed")
        options.drop_headers.emplace_back("Authorization");  // ours all the same, without the scope or of before
    }
    std::string token(exchange.headers().get(kTrafficToken));
    if (token.empty()) token = exchange.headers().get(kE2bToken);
    options.drop_headers.emplace_back(kE2bToken);
    if (looks_like_key(exchange.headers().get("X-API-KEY"))) options.drop_headers.emplace_back("X-API-KEY");
    std::string tenant;
    bool by_token = false;
    if (key) {
      tenant = key->tenant;
      options.set_headers.set("Space-Tenant", key->tenant);
      options.drop_headers.emplace_back("Authorization");  // the guest must never see it
    } else if (co_await is_public(address)) {
      options.set_headers.set("Space-Port-Access", "public");
    } else if (!token.empty()) {
      options.set_headers.set(kTrafficToken, token);
      by_token = true;
    } else {
      co_return refused();
    }
    if (!by_token) token.clear();  // what else came in its place means nothing
    CO_TRY_VOID(co_await wake(address.sandbox, tenant, token));

    http::say_who_asks(exchange, options);
    options.set_headers.set("Space-Port-Host", std::string(exchange.headers().get("Host")));
    options.set_headers.set("Space-Request", exchange.request_id());
    options.target = fmt::format("/v1/sandboxes/{}/ports/{}{}", address.sandbox, address.port, address.target);
    options.upgrade = true;
    options.event_stream = true;
    auto done = co_await http::forward(exchange, services_.node.ports(), std::move(options));
    co_return done;
  }

  asio::awaitable<bool> is_public(const wire::PortAddress& address) {
    auto found = co_await services_.store.port_is_public(address.sandbox, address.port);
    co_return found&&* found;
  }

  // A sandbox that rests is woken by whoever may use it, and the request waits: a paused one always, a suspended one where its policy of
  // rest says so. A token is checked before that; node checks it again, with what it came for.
  Task<> wake(const std::string& id, const std::string& tenant, const std::string& token) {
    CO_TRY(control::Sandbox sandbox, co_await services_.store.find_any_sandbox(id));
    if (!tenant.empty() && sandbox.tenant != tenant)
      co_return fail(ErrorKind::not_found, "sandbox_not_found", "there is no such sandbox", "list what there is: GET /v1/sandboxes");
    const bool paused = sandbox.state == control::SandboxState::paused, suspended = sandbox.state == control::SandboxState::suspended;
    if (!paused && !(sandbox.rest.any() && (suspended || sandbox.state == control::SandboxState::running))) co_return Result<>();
    if ((paused || suspended) && !token.empty()) CO_TRY_VOID(co_await check_token(sandbox, token));
    CO_TRY_VOID(co_await awake(services_, std::move(sandbox)));
    co_return Result<>();
  }

  Task<> check_token(const control::Sandbox& sandbox, const std::string& token) {
    CO_TRY(const std::string right, co_await traffic_token(services_, sandbox.id, sandbox.tenant));
    if (!equal_constant_time(right, token))
      co_return fail(ErrorKind::unauthenticated, "traffic_token_invalid", "this port is private, and no valid token came with the request",
                     "send an API key, or make the port public");
    co_return Result<>();
  }

  Services& services_;
  const std::string domain_;
};

}  // namespace

Task<std::string> traffic_token(Services& services, std::string sandbox, std::string tenant) {
  http::Request request;
  request.target = fmt::format("/v1/sandboxes/{}/tokens", sandbox);
  request.headers.set("Space-Tenant", tenant);
  auto answer = co_await services.node.forwarding().request(std::move(request));
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  CO_TRY(const json::object object, parse_json_object(answer->body));
  JsonReader reader(object);
  reader.ignore_unknown();
  std::string token = reader.text("traffic", 32, 128);
  CO_TRY_VOID(reader.done());
  co_return token;
}

http::Handler with_ports(Services& services, http::Handler next, std::string domain) {
  const auto ports = std::make_shared<Ports>(services, std::move(domain));
  return [ports, next = std::move(next)](http::Exchange& exchange) -> Task<> {
    auto address = ports->address_of(exchange);
    if (!address) return next(exchange);
    return ports->serve(exchange, std::move(*address));
  };
}

}  // namespace space::api
