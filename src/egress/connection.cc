#include <fmt/format.h>
#include <utility>

#include "egress/flow.h"
#include "egress/http_session.h"
#include "egress/splice.h"
#include "egress/tls_session.h"

namespace space::egress {
namespace {

using Handling = Verdict::Handling;

// A look at TLS that is passed on: the name that it asks for must not be a forbidden one.
std::function<SpliceOptions::Look(std::string_view)> look_at_tls(Flow& flow, std::function<void(Protocol)> speaks) {
  return [&flow, speaks = std::move(speaks), reader = std::make_shared<ClientHelloReader>()](std::string_view bytes) {
    using State = ClientHelloReader::State;
    std::string why;
    switch (reader->feed(bytes)) {
      case State::more:
        return SpliceOptions::Look::hold;
      case State::not_tls:
        speaks(Protocol::tcp);
        return SpliceOptions::Look::pass;
      case State::malformed:
        why = reader->error().message;
        break;
      case State::done:
        flow.hello = reader->hello();
        if (const auto refusal = tunnel_refusal(*flow.hello, flow.to(), *flow.settings().policy)) {
          why = *refusal;
          break;
        }
        // A rule for https would want the name of the connection in it, where that has one.
        speaks(flow.to().name.empty() || flow.hello->server_name == flow.to().name ? Protocol::https : Protocol::tcp);
        return SpliceOptions::Look::pass;
    }
    Event event = flow.event("security", "deny");
    event.reason = why;
    flow.sandbox().report(std::move(event));
    flow.cut(std::move(why));
    return SpliceOptions::Look::refuse;
  };
}

asio::awaitable<void> pass_on(Flow& flow, http::Stream& guest, Verdict verdict, bool look) {
  Upstream upstream;
  const std::vector<std::string> no_protocols;
  const auto connected = co_await connect_upstream(flow, upstream, false, no_protocols);
  const auto report = [&](std::string outcome, std::string reason) {
    Event event = flow.event("connection", std::move(outcome));
    event.rule = verdict.rule;
    event.reason = std::move(reason);
    flow.sandbox().report(std::move(event));
  };
  if (!connected) {
    report(connected.error().kind == ErrorKind::permission_denied ? "deny" : "error", connected.error().message);
    guest.reset();
    co_return;
  }
  report(verdict.rule.empty() && flow.settings().policy->monitor() ? "monitor" : "allow", verdict.reason);
  // For the monitor mode: which kind of rule would do, as soon as the guest has said something.
  bool noted = false;
  const auto speaks = [&](Protocol protocol) {
    if (!std::exchange(noted, true)) flow.sandbox().observed().note(flow.to(), protocol, "");
  };
  SpliceOptions options;
  if (look)
    options.look = look_at_tls(flow, speaks);
  else
    speaks(Protocol::tcp);
  co_await splice(flow, guest, *upstream.stream, std::move(options));
  speaks(flow.to().port == 443 ? Protocol::https : Protocol::tcp);
  report(flow.is_cut() ? "deny" : "allow", flow.is_cut() ? flow.why_cut() : "closed");
}

}  // namespace

asio::awaitable<void> serve_connection(std::shared_ptr<Sandbox> sandbox, Fd accepted) {
  struct Over {  // the sandbox counted it when it accepted
    Sandbox& sandbox;
    ~Over() { --sandbox.admitted; }
  } over{*sandbox};
  const auto dialled = sandbox->services().original_destination(accepted.get());
  auto socket = http::adopt_socket(sandbox->services().executor, std::move(accepted));
  if (!socket) co_return;
  auto guest = http::make_plain_stream(std::move(*socket));
  if (!dialled) {
    guest->reset();
    co_return;
  }
  Destination to;
  to.port = dialled->port;
  const std::string* name = sandbox->names().find(dialled->address);
  if (name)
    to.name = *name;
  else
    to.address = dialled->address;
  ++sandbox->counters().connections;
  Flow flow(sandbox, to);
  // A synthetic address that was never given to a name means nothing, whatever ranges the rules allow.
  Verdict verdict{false, "", "this synthetic address stands for no name of this sandbox", Handling::refuse};
  if (name || !NameMap::is_synthetic(dialled->address)) verdict = flow.settings().policy->connect(to);
  if (sandbox->budget().used_up()) verdict = {false, "", "the sandbox used up its bytes", Handling::refuse};
  if (!verdict.allowed) {
    Event event = flow.event("connection", "deny");
    event.rule = verdict.rule;
    event.reason = verdict.reason;
    sandbox->report(std::move(event));
    // Where HTTP is spoken in the clear, a sentence says who refused and why: the same check refuses each request. Elsewhere a
    // reset is all that a client understands.
    if (to.port == 80 && !sandbox->budget().used_up()) {
      flow.handling = Handling::inspect_http;
      const Watched watched(flow, *guest);
      Upstream upstream;
      co_await serve_http1(flow, *guest, upstream, false, std::nullopt);
      co_return;
    }
    guest->reset();
    co_return;
  }
  flow.handling = handling_of(verdict, flow.settings(), to);
  switch (flow.handling) {
    case Handling::inspect_http: {
      const Watched watched(flow, *guest);
      Upstream upstream;
      co_await serve_http1(flow, *guest, upstream, false, std::nullopt);
      co_return;
    }
    case Handling::terminate_tls: {
      // The stream moves into the TLS session, which watches it there.
      auto first = std::make_unique<Watched>(flow, *guest);
      co_await terminate_tls(flow, std::move(guest), std::move(verdict));
      first.reset();
      co_return;
    }
    case Handling::tunnel:
    case Handling::splice: {
      const bool look = verdict.handling != Handling::splice;
      const Watched watched(flow, *guest);
      co_await pass_on(flow, *guest, std::move(verdict), look);
      co_return;
    }
    case Handling::refuse:
      guest->reset();
  }
}

}  // namespace space::egress
