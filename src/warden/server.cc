#include "warden/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/log.h"
#include "base/unix_socket.h"

namespace space::warden {
namespace {
constexpr std::size_t kMaxPeers = 64;
constexpr std::chrono::seconds kEndingPatience{10};
}  // namespace

Result<std::unique_ptr<Server>> Server::make(Fd listener, Fd stop, std::vector<uid_t> peers) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "make an epoll");
  std::unique_ptr<Server> server(new Server(std::move(epoll), std::move(listener), std::move(stop), std::move(peers)));
  TRY_VOID(server->add(server->listener_.get(), EPOLLIN));
  TRY_VOID(server->add(server->stop_.get(), EPOLLIN));
  return server;
}

Result<> Server::add(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "watch a descriptor");
  return {};
}

void Server::watch(const Fd& pidfd) {
  if (auto added = add(pidfd.get(), EPOLLIN); !added) log::error("warden.not_watched", {{"error", added.error()}});
}

Result<> Server::run(Service& service) {
  std::array<epoll_event, 64> events;
  for (;;) {
    const bool waiting = std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return p.second.waiting.has_value(); });
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), waiting ? 500 : -1);
    if (n < 0 && errno != EINTR) return fail_errno(errno, "wait for events");
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == stop_.get()) return {};
      if (fd == listener_.get()) {
        accept();
      } else if (const auto peer = peers_.find(fd); peer != peers_.end()) {
        if (!serve(peer->second, service)) peers_.erase(peer);
      } else {
        // Taken out by hand: a copy that somebody else holds would keep it in.
        (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
        service.ended(fd);
      }
    }
    retry(service);
  }
}

void Server::accept() {
  auto socket = accept_unix(listener_);
  if (!socket) return log::warn("warden.accept_failed", {{"error", socket.error()}});
  const auto peer = peer_credentials(*socket);
  const bool allowed = peer && (peer->uid == 0 || std::find(allowed_.begin(), allowed_.end(), peer->uid) != allowed_.end());
  if (!allowed || peers_.size() >= kMaxPeers)
    return log::warn("warden.peer_refused",
                     {{"uid", peer ? static_cast<std::int64_t>(peer->uid) : -1}, {"why", allowed ? "too many" : "not allowed"}});
  // A peer that does not take its answers must not hold up the others.
  constexpr timeval patience{1, 0};
  (void)::setsockopt(socket->get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const int fd = socket->get();
  if (!add(fd, EPOLLIN)) return;
  peers_[fd] = Peer{std::move(*socket), peer->uid, std::nullopt, {}};
}

bool Server::serve(Peer& peer, Service& service) {
  if (peer.waiting) return false;  // it spoke out of turn, or left
  auto packet = receive_packet(peer.socket, sizeof(wire::WardenRequest));
  if (!packet) return false;
  const auto request = wire::parse_warden_request(packet->bytes);
  if (!request) {
    log::warn("warden.bad_request", {{"uid", static_cast<std::int64_t>(peer.uid)}, {"error", request.error()}});
    return false;
  }
  return answer(peer, *request, std::move(packet->fds), service);
}

bool Server::answer(Peer& peer, const wire::WardenRequest& request, std::vector<Fd> fds, Service& service) {
  Answer answer;
  const auto done = service.ask(request, fds, peer.uid, answer);
  if (!done) {
    answer.fds.clear();
    wire::put_error(answer.reply, done.error());
    log::warn("warden.refused", {{"call", static_cast<int>(request.call)}, {"vm", wire::text_of(request.vm)}, {"error", done.error()}});
  } else if (*done == Service::Progress::busy) {
    const auto now = std::chrono::steady_clock::now();
    if (!peer.waiting) {
      peer.waiting = request;
      peer.give_up = now + kEndingPatience;
    }
    if (now < peer.give_up) return true;
    wire::put_error(answer.reply, {ErrorKind::deadline_exceeded, "vmm_does_not_end",
                                   fmt::format("VM {} was killed and has not ended", wire::text_of(request.vm)), "try again"});
  }
  peer.waiting.reset();
  std::vector<int> passed;
  for (const Fd& fd : answer.fds) passed.push_back(fd.get());
  return send_packet(peer.socket, std::as_bytes(std::span(&answer.reply, 1)), passed).has_value();
}

void Server::retry(Service& service) {
  for (auto it = peers_.begin(); it != peers_.end();) {
    const bool over = it->second.waiting && !answer(it->second, wire::WardenRequest(*it->second.waiting), {}, service);
    it = over ? peers_.erase(it) : std::next(it);
  }
}

}  // namespace space::warden
