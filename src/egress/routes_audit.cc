#include <charconv>

#include "egress/routes.h"
#include "http/sse.h"

namespace space::egress {
namespace {

constexpr std::chrono::seconds kKeepalive{15};

struct Wanted {
  std::string tenant, sandbox;
  std::uint64_t after = 0;
  bool follow = true;
  bool covers(const AuditEntry& e) const { return (tenant.empty() || e.tenant == tenant) && (sandbox.empty() || e.sandbox == sandbox); }
};

Task<> pump(http::SseWriter& out, AuditLog& audit, Wanted wanted) {
  for (;;) {
    const AuditEntry* entry = audit.after(wanted.after);
    if (!entry) {
      if (!wanted.follow) co_return co_await out.finish();
      const bool more = co_await audit.wait(kKeepalive);
      if (!more) CO_TRY_VOID(co_await out.keepalive());
      continue;
    }
    wanted.after = entry->sequence;
    if (!wanted.covers(*entry)) continue;
    http::SseEvent event{std::to_string(entry->sequence), entry->kind, entry->text};  // a copy: the entry may go while it is sent
    CO_TRY_VOID(co_await out.send(event));
  }
}

Task<> audit(http::Exchange& exchange, AuditLog& log) {
  using namespace asio::experimental::awaitable_operators;
  Wanted wanted;
  wanted.tenant = exchange.target().query_value("tenant").value_or("");
  wanted.sandbox = exchange.target().query_value("sandbox").value_or("");
  wanted.follow = exchange.target().query_value("follow").value_or("true") != "false";
  std::string after = exchange.target().query_value("after").value_or("");
  if (const auto last = exchange.headers().get("Last-Event-ID"); !last.empty()) after = last;
  const auto [end, error] = std::from_chars(after.data(), after.data() + after.size(), wanted.after);
  if (!after.empty() && (error != std::errc() || end != after.data() + after.size()))
    co_return fail(ErrorKind::invalid_argument, "bad_sequence", "after must be the number of an event");
  http::SseWriter out(exchange);
  CO_TRY_VOID(co_await out.start());
  auto ended = co_await (pump(out, log, wanted) || exchange.disconnected());
  if (ended.index() == 0) co_return std::get<0>(std::move(ended));
  co_return fail(ErrorKind::cancelled, "reader_gone", "the reader closed the connection");
}

}  // namespace

void add_audit_routes(http::Router& router, Parent& parent) {
  router.add("GET", "/audit", [&parent](http::Exchange& exchange) -> Task<> { co_return co_await audit(exchange, parent.audit()); });
}

}  // namespace space::egress
