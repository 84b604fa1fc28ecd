#include "api/idempotency.h"

#include <algorithm>

#include "api/render.h"
#include "api/request.h"
#include "base/encoding.h"
#include "base/log.h"

namespace space::api {
namespace {

constexpr std::size_t kLongestKept = 64 << 10;
constexpr std::int64_t kSecretLifeUs = 15LL * 60 * 1'000'000;
constexpr std::size_t kMostSecrets = 256;

using Entry = std::pair<std::string, std::string>;

// Stands in `in_flight` while its request is under way.
class InFlight {
 public:
  InFlight(Services& services, Entry entry) : services_(services), entry_(std::move(entry)) { services_.in_flight.insert(entry_); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() { services_.in_flight.erase(entry_); }

 private:
  Services& services_;
  Entry entry_;
};

tl::unexpected<Error> reused() {
  return fail(ErrorKind::unsupported, "idempotency_key_reused", "this Idempotency-Key was used for another request",
              "use a new key for every new request; send the same key only with exactly the same request");
}

Task<> drain(http::Exchange& exchange) {
  std::string buffer(64 << 10, '\0');
  while (true) {
    CO_TRY(const std::size_t got, co_await exchange.read(std::as_writable_bytes(std::span(buffer))));
    if (got == 0) co_return Result<>();
  }
}

Task<> replay(Services& services, Observed& exchange, Repeat repeat, const Entry& entry, control::KeptAnswer kept) {
  if (kept.status == 0)
    co_return fail(ErrorKind::conflict, "idempotency_outcome_unknown",
                   "the server was restarted while the first request with this key was under way",
                   "look whether it took effect, then go on with a new key");
  if (repeat == Repeat::streamed) {
    CO_TRY_VOID(co_await drain(exchange));
    if (exchange.body_digest() != kept.operation) co_return reused();
  }
  if (repeat == Repeat::secret) {
    const auto known = services.secret_answers.find(entry);
    if (known == services.secret_answers.end() || known->second.until_us < services.clock.monotonic_us())
      co_return fail(ErrorKind::conflict, "secret_shown_once",
                     "the first request with this key was carried out, and its answer holds a secret that is not kept",
                     "revoke what it made (GET /v1/keys), then make another with a new Idempotency-Key");
    kept.body = known->second.body;
  }
  co_return co_await exchange.reply(replayed(kept.status, std::move(kept.body)));
}

// Before the client has the answer, so that whoever repeats the request finds it. Only what took effect is kept.
Task<> keep_answer(Services& services, Observed& exchange, Repeat repeat, const Entry& entry, const std::string& print, int status,
                   std::string body, bool& done) {
  if (status < 200 || status >= 300) co_return Result<>();
  control::KeptAnswer answer{print, status, std::move(body), ""};
  if (repeat == Repeat::streamed) answer.operation = exchange.body_digest();
  if (repeat == Repeat::secret) {
    if (services.secret_answers.size() >= kMostSecrets) services.secret_answers.erase(services.secret_answers.begin());
    services.secret_answers[entry] = {std::move(answer.body), services.clock.monotonic_us() + kSecretLifeUs};
    answer.body.clear();
  }
  done = true;
  auto remembered = co_await services.store.remember_answer(entry.first, entry.second, std::move(answer));
  if (!remembered) log::error("answer.not_kept", {{"error", remembered.error()}});
  co_return Result<>();
}

}  // namespace

Result<std::optional<std::string>> idempotency_key(const http::Exchange& exchange) {
  const std::size_t count = exchange.headers().count("Idempotency-Key");
  if (count == 0) return std::optional<std::string>();
  const std::string key(exchange.headers().get("Idempotency-Key"));
  const bool printable = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; });
  if (count > 1 || key.empty() || key.size() > 255 || !printable)
    return fail(ErrorKind::invalid_argument, "invalid_header", "Idempotency-Key must be one value of 1 to 255 printable characters",
                "send a random id");
  return std::optional(key);
}

std::string fingerprint(const http::Exchange& exchange, std::string_view body) {
  Sha256Stream digest;
  for (std::string_view part : {std::string_view(exchange.method()), std::string_view(exchange.target().raw), body}) {
    const std::string length = std::to_string(part.size()) + ":";
    digest.add(as_bytes(length));
    digest.add(as_bytes(part));
  }
  return hex_encode(digest.finish());
}

Result<std::optional<control::Idempotency>> recorded(const http::Exchange& exchange, std::string_view body, int status) {
  TRY(auto key, idempotency_key(exchange));
  if (!key) return std::optional<control::Idempotency>();
  control::Idempotency keep;
  keep.key = std::move(*key);
  keep.fingerprint = fingerprint(exchange, body);
  keep.render = [print = keep.fingerprint, status](const control::Sandbox& sandbox, const control::Operation& operation) {
    return control::KeptAnswer{print, status, render_change(operation, &sandbox), operation.id};
  };
  return std::optional(std::move(keep));
}

http::Response replayed(int status, std::string body) {
  http::Response response;
  response.status = status;
  if (!body.empty()) response.headers.set("Content-Type", "application/json");
  response.headers.set("Idempotency-Replayed", "true");
  response.body = std::move(body);
  return response;
}

Task<> answer_once(Services& services, Observed& exchange, const Route& route) {
  const Repeat repeat = route.repeat;
  std::string body;
  if (repeat != Repeat::streamed) {
    CO_TRY_VOID(check_media_type(exchange));
    auto read = co_await exchange.read_body(kJsonLimit);
    if (!read) co_return tl::unexpected(read.error());
    body = *read;
    exchange.preload(std::move(*read));
  }
  if (route.check) {
    const std::string_view text = body.empty() ? std::string_view("{}") : std::string_view(body);
    CO_TRY(const json::object object, parse_json_object(text, kJsonLimit));
    CO_TRY_VOID(route.check(object));
  }
  CO_TRY(const auto key, idempotency_key(exchange));
  if (!key) co_return co_await route.handler(services, exchange);

  // Whoever comes with an attach token has no tenant; what he repeats belongs to the sandbox. Nothing is kept for one that opens nothing.
  const auto token = exchange.attributes.find("attach_token");
  if (token != exchange.attributes.end())
    CO_TRY_VOID(co_await services.node.may_attach(exchange.param("id"), exchange.param("session"), token->second));
  const std::string tenant = tenant_of(exchange).empty() ? "attach:" + exchange.param("id") : tenant_of(exchange);
  const Entry entry{tenant, *key};
  if (services.in_flight.contains(entry))
    co_return fail(ErrorKind::conflict, "idempotency_in_flight", "the first request with this Idempotency-Key is still under way",
                   "wait for its answer, or send this again in a second");
  const InFlight under_way(services, entry);
  const std::string print = fingerprint(exchange, body);
  CO_TRY(auto kept, co_await services.store.begin_answer(tenant, *key, print));
  if (kept) co_return co_await replay(services, exchange, repeat, entry, std::move(*kept));

  bool done = false;
  const auto keep = [&](int status, std::string answer) {
    return keep_answer(services, exchange, repeat, entry, print, status, std::move(answer), done);
  };
  exchange.hold_answer(kLongestKept, keep);
  auto result = co_await route.handler(services, exchange);
  if (!done)  // an error, or an answer too long to keep: the same key may try again
    if (auto forgotten = co_await services.store.forget_answer(tenant, *key); !forgotten)
      log::error("answer.not_forgotten", {{"error", forgotten.error()}});
  co_return result;
}

}  // namespace space::api
