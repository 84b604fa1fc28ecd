#include <fmt/format.h>

#include "egress/flow.h"
#include "egress/splice.h"

namespace space::egress {
namespace {

// What a binding needs read is never passed through, whatever else allows the connection.
bool needs_reading(const Settings& settings, const Destination& to) {
  return !to.name.empty() && std::any_of(settings.bindings.begin(), settings.bindings.end(), [&](const Binding& b) { return b.matches_host(to.name, to.port); });
}

asio::awaitable<void> pass_on(Flow& flow, http::Stream& guest, const Verdict& verdict) {
  auto dialled = co_await flow.sandbox().services().dialer->dial(flow.to(), flow.settings().policy, flow.sandbox().resolver_cache());
  if (!dialled) {
    Event event = flow.event("connection", dialled.error().kind == ErrorKind::permission_denied ? "deny" : "error");
    event.rule = verdict.rule;
    event.reason = dialled.error().message;
    flow.sandbox().report(std::move(event));
    guest.reset();
    co_return;
  }
  flow.dialled = dialled->to.address;
  flow.has_dialled = true;
  const Watched watched(flow, *dialled->stream);
  Event event = flow.event("connection", "allow");
  event.rule = verdict.rule;
  event.reason = verdict.reason;
  flow.sandbox().report(std::move(event));
  co_await splice(flow, guest, *dialled->stream);
  Event end = flow.event("connection", flow.is_cut() ? "deny" : "allow");
  end.rule = verdict.rule;
  end.reason = flow.is_cut() ? flow.why_cut() : "closed";
  flow.sandbox().report(std::move(end));
}

}  // namespace

asio::awaitable<void> serve_connection(std::shared_ptr<Sandbox> sandbox, Fd accepted) {
  const auto dialled = sandbox->services().original_destination(accepted.get());
  auto socket = http::adopt_socket(sandbox->services().executor, std::move(accepted));
  if (!socket) co_return;
  const auto guest = http::make_plain_stream(std::move(*socket));
  if (!dialled) {
    guest->reset();
    co_return;
  }
  Destination to;
  to.port = dialled->port;
  const std::string* name = sandbox->names().find(dialled->address);
  if (name) to.name = *name;
  else to.address = dialled->address;
  ++sandbox->counters().connections;
  Flow flow(sandbox, to);
  const Watched watched(flow, *guest);
  // A synthetic address that was never given to a name means nothing, whatever ranges the rules allow.
  Verdict verdict{false, "", "this synthetic address stands for no name of this sandbox", Verdict::Handling::refuse};
  if (name || !NameMap::is_synthetic(dialled->address)) verdict = flow.settings().policy->connect(to);
  if (!verdict.allowed) {
    Event event = flow.event("connection", "deny");
    event.rule = verdict.rule;
    event.reason = verdict.reason;
    sandbox->report(std::move(event));
    guest->reset();
    co_return;
  }
  co_await pass_on(flow, *guest, verdict);
  (void)needs_reading;
}

}  // namespace space::egress
