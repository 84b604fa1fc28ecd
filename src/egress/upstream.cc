#include "egress/upstream.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <sys/socket.h>

#include "egress/authority.h"

namespace space::egress {
namespace {

constexpr std::chrono::seconds kUpstreamHandshake{10};

}  // namespace

void Upstream::drop() {
  watched.reset();
  if (stream) stream->close();
  stream.reset();
  in = http::InBuffer();
  used = false;
}

bool Upstream::stale() {
  if (!stream) return false;
  if (!in.empty()) return true;
  if (auto* tls = dynamic_cast<TlsStream*>(stream.get())) return tls->stale();
  char byte = 0;
  const ssize_t n = ::recv(stream->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return false;
  return true;
}

Task<> connect_upstream(Flow& flow, Upstream& upstream, bool tls, std::vector<std::string> protocols) {
  using namespace asio::experimental::awaitable_operators;
  upstream.drop();
  const auto policy = flow.settings().policy;
  CO_TRY(Dialled dialled, co_await flow.sandbox().services().dialer->dial(flow.to(), policy, flow.sandbox().resolver_cache()));
  flow.set_dialled(dialled.to.address);
  // The address was judged by the policy of then.
  if (flow.settings().policy != policy) flow.reconsider();
  if (flow.is_cut()) co_return fail(ErrorKind::cancelled, "cut", flow.why_cut());
  if (!tls) {
    upstream.stream = std::move(dialled.stream);
    upstream.watched = std::make_unique<Watched>(flow, *upstream.stream);
    co_return Result<>();
  }
  CO_TRY(SslPtr ssl, flow.sandbox().services().upstream_tls->connect(flow.to().name, protocols));
  auto stream = std::make_unique<TlsStream>(std::move(dialled.stream), std::move(ssl));
  auto watched = std::make_unique<Watched>(flow, *stream);
  const auto done = co_await (stream->handshake() || sleep_for(kUpstreamHandshake));
  if (done.index() == 1)
    co_return fail(ErrorKind::unavailable, "upstream_timeout", fmt::format("{} did not finish its TLS handshake in time", flow.host_text()),
                   "try again later");
  if (const auto& result = std::get<0>(done); !result)
    co_return fail(ErrorKind::unavailable, "upstream_tls",
                   fmt::format("{} was not trusted or does not speak TLS: {}", flow.host_text(), result.error().message),
                   "its certificate must be valid for this name and of a known authority");
  upstream.protocol = stream->protocol();
  upstream.stream = std::move(stream);
  upstream.watched = std::move(watched);
  co_return Result<>();
}

}  // namespace space::egress
