#include "egress/http_session.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fmt/format.h>

#include "egress/credentials.h"
#include "egress/http_exchange.h"
#include "egress/http_request.h"
#include "egress/quick_io.h"
#include "http/watchdog.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestRequest = 64 << 10;
constexpr std::size_t kMostRequestFields = 100;
constexpr std::size_t kRoom = 4 << 10;
constexpr std::chrono::seconds kIdleBetween{75}, kHeadTime{20};

class Session {
 public:
  Session(Flow& flow, http::Stream& guest, Upstream& upstream, bool tls, std::optional<Error> dead)
      : flow_(flow),
        guest_(guest),
        upstream_(upstream),
        tls_(tls),
        dead_(std::move(dead)),
        watch_(flow.sandbox().services().executor,
               [this] {
                 expired_ = true;
                 guest_.cancel();
               }),
        stall_(flow.sandbox().services().executor, [&flow] { flow.cut("nothing moved for ten minutes"); }) {}

  asio::awaitable<void> run() {
    for (bool on = true; on && !flow_.is_cut();) on = co_await serve_one();
    watch_.clear();
    if (!flow_.is_cut()) co_await close_gently(guest_);
  }

 private:
  // True: another request may follow.
  asio::awaitable<bool> serve_one() {
    auto head = co_await read_head();
    if (!head) {
      if (flow_.is_cut() || head.error().kind == ErrorKind::cancelled) co_return false;
      Refusal refusal{head.error().code == "headers_too_large" ? 431
                      : head.error().code == "target_too_long" ? 414
                                                               : 400,
                      head.error(), "", false};
      const http::Head unknown;
      co_await refuse(std::move(refusal), unknown);
      co_return false;
    }
    Sandbox& sandbox = flow_.sandbox();
    ++sandbox.counters().requests;
    const auto settings = sandbox.settings();
    if (!sandbox.budget().request()) {
      Refusal refusal{429,
                      Error{ErrorKind::resource_exhausted, "too_many_requests",
                            fmt::format("this sandbox may send {} requests a second", settings->limits.requests_per_second), "send fewer"},
                      "", false};
      co_await refuse(std::move(refusal), *head);
      co_return false;
    }
    auto request = check_request(*head, flow_.to(), tls_, *settings);
    if (!request) {
      co_await refuse(std::move(request).error(), *head);
      co_return false;
    }
    HttpExchange exchange(flow_, guest_, in_, upstream_, tls_, stall_, *head, *request);
    strip_request(head->headers, settings->policy->reads_methods(request->to));
    auto injection = inject(*sandbox.services().credentials, *settings, tls_, *request, head->headers);
    if (!injection) {
      co_await refuse(std::move(injection).error(), *head);
      co_return false;
    }
    sandbox.observed().note(request->to, tls_ ? Protocol::https : Protocol::http, request->method);
    flow_.set_request(request->method, request->path, flow_.to().name.empty() ? request->host_name : std::string());
    std::optional<Error> dead;
    dead.swap(dead_);
    const auto outcome = co_await exchange.run(*injection, std::move(dead));
    flow_.set_request("", "", "");
    if (!injection->names.empty()) {
      // However it ended, no copy of the secret stays in freed memory. The log takes the path from elsewhere.
      wipe_fields(head->headers);
      wipe_string(request->target);
    }
    if (outcome.refusal) {
      co_await refuse(*outcome.refusal, *head);
      co_return false;
    }
    Event event = flow_.event("request", flow_.is_cut() ? "deny" : outcome.cut_off ? "error" : request->monitored ? "monitor" : "allow");
    fill(event, *head);
    event.path = request->path;
    event.rule = request->rule;
    event.status = outcome.status;
    event.credential = injection->names;
    event.bytes_up = outcome.bytes_up;
    event.bytes_down = outcome.bytes_down;
    event.reason = flow_.is_cut() ? flow_.why_cut() : outcome.note;
    sandbox.report(std::move(event));
    if (outcome.cut_off) guest_.reset();  // the guest must not take half for whole
    co_return outcome.keep;
  }

  Task<http::Head> read_head() {
    const auto over = [] { return fail(ErrorKind::cancelled, "closed", "the guest has no more requests"); };
    http::HeadScanner scanner(kLongestRequest);
    in_.shrink();
    watch_.set(in_.empty() ? kIdleBetween : kHeadTime);
    for (;;) {
      CO_TRY(const auto length, scanner.scan(in_.view()));
      if (length) {
        auto head = http::parse_request_head(in_.view().substr(0, *length), kMostRequestFields);
        in_.consume(*length);
        watch_.clear();
        co_return head;
      }
      const bool first = in_.empty();
      http::Transfer got;
      // A connection without a request holds no buffer.
      if (first) got.error = co_await wait_for_data(guest_);
      if (!got.error) {
        const std::array room{in_.prepare(kRoom)};
        got = co_await guest_.read_some(room);
      }
      if (got.error) {
        const bool slow = expired_ && !first;
        watch_.clear();
        if (slow)
          co_return fail(ErrorKind::deadline_exceeded, "request_timeout", "the head of the request did not come in time",
                         "send it at once");
        co_return over();
      }
      in_.commit(got.bytes);
      if (first) watch_.set(kHeadTime);
    }
  }

  void fill(Event& event, const http::Head& head) {
    event.method = head.method;
    event.protocol = tls_ ? "https" : "http";
    event.path = head.target.substr(0, head.target.find('?'));
  }

  asio::awaitable<void> refuse(Refusal refusal, const http::Head& head) {
    Event event = flow_.event(refusal.security ? "security" : "request", refusal.status >= 500 ? "error" : "deny");
    fill(event, head);
    event.rule = refusal.rule;
    event.status = refusal.status;
    event.reason = refusal.error.message;
    flow_.sandbox().report(std::move(event));
    const http::Response response = refusal_response(refusal);
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, http::reason_phrase(response.status));
    for (const auto& [name, value] : response.headers.fields()) (void)http::append_field(text, name, value);
    text += fmt::format("Content-Length: {}\r\nConnection: close\r\n\r\n", response.body.size());
    if (head.method != "HEAD") text += response.body;
    const std::array part{asio::const_buffer(text.data(), text.size())};
    watch_.set(kHeadTime);
    (void)co_await guest_.write_all(part);
    watch_.clear();
  }

  Flow& flow_;
  http::Stream& guest_;
  Upstream& upstream_;
  bool tls_;
  std::optional<Error> dead_;
  http::InBuffer in_;
  bool expired_ = false;
  http::Watchdog watch_, stall_;
};

}  // namespace

Refusal upstream_refusal(const Error& error) {
  int status = 502;
  if (error.kind == ErrorKind::permission_denied) status = 403;
  if (error.code == "upstream_timeout") status = 504;
  Refusal refusal{status, error, "", false};
  refusal.error.message = "the egress gateway could not reach the host: " + error.message;
  return refusal;
}

asio::awaitable<void> close_gently(http::Stream& guest) {
  using namespace asio::experimental::awaitable_operators;
  auto drain = [&guest]() -> asio::awaitable<void> {
    co_await guest.close_write();
    const auto buffer = std::make_unique_for_overwrite<std::array<char, 4096>>();
    const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
    for (std::size_t dropped = 0; dropped < (256 << 10);) {
      const http::Transfer got = co_await guest.read_some(room);
      if (got.error) break;
      dropped += got.bytes;
    }
  };
  (void)co_await (drain() || sleep_for(std::chrono::milliseconds(1000)));
}

asio::awaitable<void> serve_http1(Flow& flow, http::Stream& guest, Upstream& upstream, bool tls, std::optional<Error> dead) {
  flow.protocol = tls ? "https" : "http";
  Session session(flow, guest, upstream, tls, std::move(dead));
  co_await session.run();
  upstream.drop();
}

}  // namespace space::egress
