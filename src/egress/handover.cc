#include "egress/handover.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <fcntl.h>

#include "base/encoding.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "wire/egress_handover.h"
#include "wire/warden_protocol.h"

namespace space::egress {
namespace {

// A descriptor that asio waits for; the Fd owns it, and the waiting ends first.
struct Waited {
  Waited(const asio::any_io_executor& executor, Fd owned) : fd(std::move(owned)), watch(executor, fd.get()) {}
  ~Waited() { watch.release(); }
  Fd fd;
  asio::posix::stream_descriptor watch;
};

Task<> handle(Parent& parent, wire::EgressRequest request, std::vector<Fd> fds) {
  const std::string sandbox = wire::text_of(request.sandbox), load = wire::text_of(request.load);
  if (request.call == wire::EgressCall::detach) co_return co_await parent.detach(sandbox, load);
  if (fds.size() != wire::kEgressSockets)
    co_return fail(ErrorKind::invalid_argument, "bad_packet", "a sandbox has three sockets for the gateway");
  const std::string tenant = wire::text_of(request.tenant);
  co_return co_await parent.attach(sandbox, tenant, load, std::move(fds));
}

asio::awaitable<void> converse(std::shared_ptr<Waited> socket, Parent& parent) {
  for (;;) {
    const auto [error] = co_await socket->watch.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
    if (error) co_return;
    auto packet = receive_packet(socket->fd, sizeof(wire::EgressRequest));
    if (!packet) {
      if (packet.error().code != "peer_closed") log::warn("egress.handover", {{"error", packet.error()}});
      co_return;
    }
    auto request = wire::parse_egress_request(packet->bytes);
    Result<> outcome;
    if (request)
      outcome = co_await handle(parent, *request, std::move(packet->fds));
    else
      outcome = fail(std::move(request).error());
    wire::EgressReply reply;
    if (!outcome) {
      reply.failed = 1 + static_cast<std::uint32_t>(outcome.error().kind);
      wire::put_text(reply.code, outcome.error().code);
      wire::put_text(reply.message, outcome.error().message);
      wire::put_text(reply.next, outcome.error().next);
    }
    // The other end waits for exactly this answer, so that it fits.
    if (!send_packet(socket->fd, as_bytes(std::string_view(reinterpret_cast<const char*>(&reply), sizeof reply)))) co_return;
  }
}

}  // namespace

asio::awaitable<void> serve_handover(asio::any_io_executor executor, Fd listener, uid_t node_uid, Parent& parent) {
  Waited waiting(executor, std::move(listener));
  for (;;) {
    const auto [error] = co_await waiting.watch.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
    if (error) co_return;
    auto accepted = accept_unix(waiting.fd);
    if (!accepted) {
      log::warn("egress.handover", {{"error", accepted.error()}});
      co_await sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    const auto peer = peer_credentials(*accepted);
    if (!peer || (peer->uid != 0 && peer->uid != node_uid)) {
      log::warn("peer.refused", {{"uid", peer ? static_cast<std::int64_t>(peer->uid) : -1}});
      continue;
    }
    spawn(executor, converse(std::make_shared<Waited>(executor, std::move(*accepted)), parent));
  }
}

}  // namespace space::egress
