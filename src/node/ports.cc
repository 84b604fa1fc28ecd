#include "node/ports.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <fmt/format.h>
#include <sys/socket.h>

#include "base/digest.h"
#include "http/proxy.h"
#include "http/tls.h"
#include "node/access.h"
#include "node/open_stream.h"
#include "wire/agent_protocol.h"
#include "wire/ports.h"

namespace space::node {
namespace {

using std::chrono::seconds;

constexpr std::size_t kMostRequests = 256;
constexpr seconds kAnswerLimit{600};  // a server may think about a request for long; the client's own limit comes first
constexpr seconds kRelayLimit{10};
constexpr seconds kTlsLimit{10};  // for the connection and for its handshake
constexpr std::size_t kRelayHead = 4096;

// Reads the head of the agent's answer and not a byte more: what follows belongs to the guest's server.
Task<std::string> read_head(asio::posix::stream_descriptor& socket) {
  std::string head;
  while (!head.ends_with("\r\n\r\n")) {
    boost::system::error_code error;
    co_await socket.async_wait(asio::posix::stream_descriptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
    for (;;) {
      char byte = 0;
      const ssize_t n = error ? 0 : ::recv(socket.native_handle(), &byte, 1, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0 || head.size() == kRelayHead) co_return fail(agent_not_answering("reach the port", "the connection ended"));
      head.push_back(byte);
      if (head.ends_with("\r\n\r\n")) break;
    }
  }
  co_return head;
}

Task<Fd> ask_for_relay(Fd fd, std::uint16_t port) {
  const std::string request =
      fmt::format("GET /v1/connect?port={} HTTP/1.1\r\nHost: agent\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", port);
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    co_return fail_errno(errno, "ask the agent for a port");
  asio::posix::stream_descriptor socket(co_await asio::this_coro::executor);
  boost::system::error_code error;
  socket.assign(fd.get(), error);
  if (error) co_return fail_errno(error.value(), "watch a socket");
  (void)fd.release();
  CO_TRY(const std::string head, co_await read_head(socket));
  if (!head.starts_with("HTTP/1.1 101 "))
    co_return fail(ErrorKind::unavailable, "port_closed", fmt::format("nothing in the sandbox listens on port {}", port),
                   "start the server there, then try again");
  co_return Fd(socket.release());
}

// A connection to the guest's server: on the wire's address, else through the agent, for servers on the loopback address.
Task<Fd> connect_port(std::shared_ptr<vmm::Vm> vm, std::uint16_t port) {
  using namespace asio::experimental::awaitable_operators;
  const http::Connector direct = vm->port_connector(port);
  auto fd = co_await direct();
  if (fd || fd.error().code != "port_closed") co_return fd;
  const http::Connector agent = vm->agent_connector();
  CO_TRY(Fd relay, co_await agent());
  auto first = co_await (ask_for_relay(std::move(relay), port) || sleep_for(kRelayLimit));
  if (first.index() == 1) co_return fail(agent_not_answering("reach the port", "no answer in time"));
  co_return std::move(std::get<0>(first));
}

class Ports {
 public:
  explicit Ports(RouteParts& parts) : parts_(parts) {}

  Task<> serve(http::Exchange& exchange) {
    const auto address = wire::port_of_path(exchange.target().raw);
    if (!address || address->port == wire::kAgentPort)
      co_return fail(ErrorKind::not_found, "port_not_found", "this is no port of a sandbox",
                     "write /v1/sandboxes/{id}/ports/{port}/… with a port from 1 to 65535, without leading zeros");
    CO_TRY(auto sandbox, allowed(exchange, address->sandbox));
    CO_TRY_VOID(sandbox->agent());  // running, or why not
    std::size_t& count = active_[address->sandbox];
    if (count >= kMostRequests)
      co_return fail(ErrorKind::resource_exhausted, "too_many_port_requests",
                     fmt::format("{} requests to ports of this sandbox are under way", count), "let some end first");
    const Counted counted(active_, address->sandbox);
    co_return co_await carry(exchange, std::move(sandbox), *address);
  }

 private:
  // Also when the coroutine is cut.
  class Counted {
   public:
    Counted(std::map<std::string, std::size_t>& all, std::string id) : all_(all), id_(std::move(id)) { ++all_[id_]; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() {
      if (const auto found = all_.find(id_); --found->second == 0) all_.erase(found);
    }

   private:
    std::map<std::string, std::size_t>& all_;
    std::string id_;
  };

  Result<std::shared_ptr<Sandbox>> allowed(const http::Exchange& exchange, const std::string& id) const {
    const http::Headers& headers = exchange.headers();
    auto sandbox = parts_.sandboxes.find(id);
    const auto unknown = [] {
      return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox", "list the sandboxes of this tenant");
    };
    if (headers.count("Space-Tenant") == 1) {
      if (!sandbox || !equal_constant_time(sandbox->record.tenant, headers.get("Space-Tenant"))) return unknown();
      return sandbox;
    }
    if (headers.count("Space-Port-Access") == 1 && headers.get("Space-Port-Access") == "public") {
      if (!sandbox) return unknown();
      return sandbox;
    }
    if (sandbox && headers.count("Space-Traffic-Token") == 1 &&
        parts_.tokens.is_token(headers.get("Space-Traffic-Token"), TokenKey::kTraffic, sandbox->record))
      return sandbox;
    return fail(ErrorKind::unauthenticated, "traffic_token_invalid", "this port is private, and no valid token came with the request",
                "send an API key, or make the port public");
  }

  // Made when the first is asked for; one for all. No connection is kept, so nothing of one sandbox's is left for another.
  Result<std::shared_ptr<http::TlsClientContext>> tls() {
    if (!tls_) {
      TRY(tls_, http::TlsClientContext::make_unverified());
    }
    return tls_;
  }

  Task<> carry(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, const wire::PortAddress& address) {
    using namespace asio::experimental::awaitable_operators;
    std::string host(exchange.headers().get("Space-Port-Host"));
    if (host.empty()) host = exchange.headers().get("Host");
    const bool secure = exchange.headers().get("Space-Port-Tls") == "yes";
    http::ClientOptions client_options;
    client_options.max_idle = 0;
    client_options.head_timeout = kAnswerLimit;
    client_options.host = fmt::format("localhost:{}", address.port);
    if (secure) {
      CO_TRY(client_options.tls, tls());
      client_options.connect_timeout = kTlsLimit;
      client_options.host = host;  // said as its name
    }
    const auto vm = sandbox->machine.vm;
    const http::Connector connector = [vm, port = address.port] { return connect_port(vm, port); };
    http::Client client(parts_.executor, connector, client_options);
    http::ProxyOptions options;
    options.target = address.target;
    options.upgrade = true;
    options.event_stream = true;  // nobody can say how long a guest's server is silent
    options.set_headers.set("Host", std::move(host));
    options.drop_prefix = "Space-";
    Cut cut(sandbox, parts_.executor);
    auto forwarding = http::forward(exchange, client, std::move(options));
    auto first = co_await (std::move(forwarding) || cut.wait());
    if (first.index() == 1)
      co_return fail(ErrorKind::unavailable, "sandbox_interrupted", "the sandbox was paused or ended while it answered",
                     "try again when it runs");
    Result<> done = std::move(std::get<0>(first));
    if (secure && !done && (done.error().code == "tls_failed" || done.error().code == "connect_timeout"))
      co_return fail(ErrorKind::unavailable, "port_no_tls",
                     fmt::format("the server on port {} began no TLS connection: {}", address.port, done.error().message),
                     "serve TLS 1.2 or 1.3 there, or make the sandbox without this port in httpsPorts");
    co_return done;
  }

  RouteParts& parts_;
  std::shared_ptr<http::TlsClientContext> tls_;
  std::map<std::string, std::size_t> active_;  // requests under way, by sandbox
};

}  // namespace

http::Handler with_ports(const http::Router& router, RouteParts& parts, uid_t api_uid) {
  const auto ports = std::make_shared<Ports>(parts);
  const auto check = peer_check(api_uid);
  const http::Handler serve = [ports](http::Exchange& exchange) { return ports->serve(exchange); };
  return [&router, check, serve](http::Exchange& exchange) -> Task<> {
    if (!wire::is_port_path(exchange.target().raw)) return router(exchange);
    return check(exchange, serve);
  };
}

}  // namespace space::node
