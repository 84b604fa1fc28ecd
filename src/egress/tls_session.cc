#include "egress/tls_session.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "egress/authority.h"
#include "egress/http2_session.h"
#include "egress/http_session.h"
#include "http/watchdog.h"

namespace space::egress {
namespace {

constexpr std::chrono::seconds kHello{10}, kHandshake{15};
constexpr unsigned char kDecodeError = 50, kUnrecognizedName = 112, kInternalError = 80;  // RFC 8446, 6.2

asio::awaitable<void> alert(http::Stream& guest, unsigned char what) {
  const std::array<unsigned char, 7> record{21, 3, 3, 0, 2, 2, what};
  const std::array part{asio::const_buffer(record.data(), record.size())};
  (void)co_await guest.write_all(part);
  co_await close_gently(guest);
}

struct Hello {
  ClientHelloReader reader;
  std::string bytes;
};

// The first bytes, until they are a whole ClientHello or clearly none.
asio::awaitable<ClientHelloReader::State> read_hello(Flow& flow, http::Stream& guest, Hello& hello) {
  http::Watchdog watch(flow.sandbox().services().executor, [&flow] { flow.cut("the TLS ClientHello did not come in time"); });
  watch.set(kHello);
  const auto buffer = std::make_unique_for_overwrite<std::array<char, 4096>>();
  auto state = ClientHelloReader::State::more;
  while (state == ClientHelloReader::State::more) {
    const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
    const http::Transfer got = co_await guest.read_some(room);
    if (got.error) co_return ClientHelloReader::State::more;
    const std::string_view piece(buffer->data(), got.bytes);
    hello.bytes.append(piece);
    state = hello.reader.feed(piece);
  }
  co_return state;
}

}  // namespace

bool names_decide(const Destination& to, const Policy& policy) {
  return policy.denies_names() || (!to.name.empty() && !policy.connect(to).rule.empty());
}

std::optional<std::string> tunnel_refusal(const ClientHello& hello, const Destination& to, const Policy& policy) {
  // What is named inside cannot be seen, so it could be another host on the same address. Browsers send such an extension to everybody
  // (GREASE, which is made to look the same): where names decide nothing, it hides nothing.
  if (hello.encrypted_client_hello && names_decide(to, policy)) return "its TLS ClientHello is encrypted (ECH), which cannot be judged";
  const bool by_name = !to.name.empty() && !policy.connect(to).rule.empty();
  if (by_name && hello.server_name != to.name)
    return hello.server_name.empty() ? std::string("its TLS ClientHello names no server")
                                     : fmt::format("its TLS ClientHello names {}", hello.server_name);
  if (!hello.server_name.empty() && hello.server_name != to.name) {
    // Allowed by address or because everything is: rules that deny the name it asks for count all the same.
    const Verdict verdict = policy.connect({hello.server_name, to.address, to.port});
    if (!verdict.allowed) return fmt::format("its TLS ClientHello names {}: {}", hello.server_name, verdict.reason);
  }
  return std::nullopt;
}

asio::awaitable<void> terminate_tls(Flow& flow, std::unique_ptr<http::Stream> guest, Verdict verdict) {
  using namespace asio::experimental::awaitable_operators;
  flow.protocol = "tls";
  Sandbox& sandbox = flow.sandbox();
  const auto report = [&](std::string kind, std::string outcome, std::string reason) {
    Event event = flow.event(std::move(kind), std::move(outcome));
    event.rule = verdict.rule;
    event.reason = std::move(reason);
    sandbox.report(std::move(event));
  };
  auto hello = std::make_unique<Hello>();
  const auto state = co_await read_hello(flow, *guest, *hello);
  switch (state) {
    case ClientHelloReader::State::more:
      report("connection", "error", flow.is_cut() ? flow.why_cut() : "the guest closed before its TLS ClientHello");
      co_return;
    case ClientHelloReader::State::not_tls:
      report("connection", "deny", "it is not TLS, which this port of this host is allowed for");
      guest->reset();
      co_return;
    case ClientHelloReader::State::malformed:
      report("security", "deny", hello->reader.error().message);
      co_await alert(*guest, kDecodeError);
      co_return;
    case ClientHelloReader::State::done:
      break;
  }
  const std::string server_name = hello->reader.hello().server_name;
  // ECH is no danger here: without the key its inner part is ignored, and what is said inside is checked again.
  if (server_name != flow.to().name) {
    report("security", "deny",
           server_name.empty() ? std::string("its TLS ClientHello names no server")
                               : fmt::format("its TLS ClientHello names {}", server_name));
    co_await alert(*guest, kUnrecognizedName);
    co_return;
  }
  const auto authority = sandbox.services().authorities->find(flow.settings().lineage);
  if (!authority) {
    report("connection", "error", "the CA of this sandbox is not there yet");
    co_await alert(*guest, kInternalError);
    co_return;
  }
  // Both ends speak the same protocol: nothing is translated from one version of HTTP to another.
  const std::vector<std::string>& offered = hello->reader.hello().alpn;
  std::vector<std::string> protocols;
  for (const char* protocol : {"h2", "http/1.1"})
    if (std::find(offered.begin(), offered.end(), protocol) != offered.end()) protocols.emplace_back(protocol);
  const std::string fallback = protocols.empty() ? std::string() : protocols.back();
  if (protocols.empty() || protocols.back() != "http/1.1") protocols.emplace_back("http/1.1");
  Upstream upstream;
  const auto connected = co_await connect_upstream(flow, upstream, true, protocols);
  if (flow.is_cut()) co_return;
  std::optional<Error> dead;
  if (!connected) {
    dead = connected.error();
    report("connection", dead->kind == ErrorKind::permission_denied ? "deny" : "error", dead->message);
  } else {
    report("connection", "allow", verdict.reason);
  }
  const std::string chosen = dead ? fallback : upstream.protocol.empty() ? std::string("http/1.1") : upstream.protocol;
  auto ssl = authority->accept(flow.to().name, chosen);
  if (!ssl) {
    log::error("egress.no_certificate", {{"name", flow.to().name}, {"error", ssl.error()}});
    co_await alert(*guest, kInternalError);
    co_return;
  }
  TlsStream stream(std::move(guest), std::move(*ssl), std::move(hello->bytes));
  hello.reset();
  const Watched watched(flow, stream);
  const auto done = co_await (stream.handshake() || sleep_for(kHandshake));
  if (flow.is_cut()) co_return;
  if (done.index() == 1 || !std::get<0>(done)) {
    // The usual cause is a client that does not trust the CA of its sandbox.
    report("connection", "error",
           done.index() == 1 ? std::string("the guest did not finish its TLS handshake")
                             : "the guest broke off its TLS handshake: " + std::get<0>(done).error().message);
    stream.reset();
    co_return;
  }
  if (stream.protocol() == "h2")
    co_await serve_http2(flow, stream, upstream, std::move(dead));
  else
    co_await serve_http1(flow, stream, upstream, true, std::move(dead));
}

}  // namespace space::egress
