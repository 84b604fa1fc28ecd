#include "egress/sandbox.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <sys/socket.h>

#include "base/log.h"
#include "egress/dns_server.h"
#include "egress/flow.h"

namespace space::egress {
namespace {

constexpr int kBacklog = 2048;  // more than the namespace lets in at a time (net/ruleset.h), so that the queue never drops silently
constexpr int kBurst = 64;
constexpr std::chrono::seconds kFlushEvery{1};

}  // namespace

// The sockets of one load. Their coroutines hold a share, so that closing them is safe at any moment.
struct Sandbox::Sockets {
  Sockets(const asio::any_io_executor& executor, std::vector<Fd> fds)
      : tcp(executor, fds[0].release()), dns_udp(executor, fds[1].release()), dns_tcp(executor, fds[2].release()) {}
  asio::posix::stream_descriptor tcp, dns_udp, dns_tcp;
  bool closed = false;

  void close() {
    closed = true;
    boost::system::error_code ignored;
    tcp.close(ignored);
    dns_udp.close(ignored);
    dns_tcp.close(ignored);
  }

  // Hands every accepted connection to `take`.
  template <class Take>
  static asio::awaitable<void> accept_from(std::shared_ptr<Sockets> self, asio::posix::stream_descriptor& listener, Take take) {
    while (!self->closed) {
      const auto [error] = co_await listener.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
      if (error || self->closed) co_return;
      for (int i = 0; i < kBurst && !self->closed; ++i) {
        Fd accepted(::accept4(listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (accepted) {
          take(std::move(accepted));
          continue;
        }
        const int reason = errno;
        if (reason == EINTR || reason == ECONNABORTED) continue;
        if (reason != EAGAIN) {
          log::warn("egress.accept_failed", {{"error", fail_errno(reason, "accept").value()}});
          co_await sleep_for(std::chrono::milliseconds(50));
        }
        break;
      }
    }
  }
};

Sandbox::Sandbox(Services& services, std::string id)
    : services_(services), id_(std::move(id)), settings_(std::make_shared<const Settings>()), flush_(services.executor) {
  budget_.set(settings_->limits);
}

Sandbox::~Sandbox() {
  if (sockets_) sockets_->close();
}

void Sandbox::update(std::shared_ptr<const Settings> settings) {
  settings_ = std::move(settings);
  budget_.set(settings_->limits);
  const std::vector<Flow*> now(flows_.begin(), flows_.end());
  for (Flow* flow : now) flow->reconsider();
}

Result<> Sandbox::serve(std::vector<Fd> fds) {
  detach();
  for (const std::size_t i : {0, 2})
    if (::listen(fds[i].get(), kBacklog) != 0) return fail_errno(errno, "listen in a sandbox's namespace");
  auto sockets = std::make_shared<Sockets>(services_.executor, std::move(fds));
  sockets_ = sockets;
  const std::weak_ptr<Sandbox> weak = weak_from_this();
  spawn(services_.executor, Sockets::accept_from(sockets, sockets->tcp, [weak](Fd accepted) {
          const auto self = weak.lock();
          if (!self) return;
          const std::uint32_t most = self->settings_->limits.connections;
          if (most != 0 && self->admitted >= most) {
            // Closed with unread data or not, the guest must see a refusal and no tidy end.
            const linger hard{1, 0};
            ::setsockopt(accepted.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            Event event;
            event.kind = "limit";
            event.verdict = "deny";
            event.protocol = "tcp";
            event.reason = fmt::format("the sandbox has {} connections open, as many as it may", most);
            return self->report(std::move(event));
          }
          ++self->admitted;
          spawn(self->services_.executor, serve_connection(self, std::move(accepted)));
        }));
  spawn(services_.executor, Sockets::accept_from(sockets, sockets->dns_tcp, [weak](Fd accepted) {
          if (const auto self = weak.lock()) spawn(self->services_.executor, serve_dns_stream(self, std::move(accepted)));
        }));
  spawn(services_.executor, [](std::shared_ptr<Sockets> s, std::weak_ptr<Sandbox> w) -> asio::awaitable<void> {
    while (!s->closed) {
      const auto [error] = co_await s->dns_udp.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
      const auto self = w.lock();
      if (error || s->closed || !self) co_return;
      co_await answer_datagrams(self, s->dns_udp.native_handle(), s->closed);
    }
  }(sockets, weak));
  return {};
}

std::size_t Sandbox::open_outside() const {
  return static_cast<std::size_t>(std::count_if(flows_.begin(), flows_.end(), [](const Flow* flow) { return flow->has_dialled; }));
}

void Sandbox::detach() {
  if (sockets_) sockets_->close();
  sockets_.reset();
  const std::vector<Flow*> now(flows_.begin(), flows_.end());
  for (Flow* flow : now) flow->cut("the sandbox left this gateway");
  tell_waiting();
}

asio::awaitable<std::uint32_t> Sandbox::number_of(std::string name) {
  bool fresh = false;
  const std::uint32_t number = names_.number(name, &fresh);
  if (fresh) {
    // The next worker must not give this number to another name, even if this one dies right after its answer.
    services_.tell({{"type", "name"}, {"sandbox", id_}, {"number", number}, {"name", name}});
    if (services_.told) co_await services_.told();
  }
  co_return number;
}

void Sandbox::report(Event event) {
  event.sandbox = id_;
  event.generation = settings_->generation;
  if (event.verdict == "deny") ++counters_.denied;
  if (const auto now = reporter_.take(std::move(event), std::chrono::steady_clock::now())) return tell(*now);
  // After the sandbox left only the connections that were cut are heard of, once each; then this goes.
  if (!sockets_) return tell_waiting();
  if (std::exchange(flush_set_, true)) return;
  flush_.expires_after(kFlushEvery);
  flush_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self) return;
    self->flush_set_ = false;
    self->tell_waiting();
  });
}

void Sandbox::tell(const Event& event) { services_.tell({{"type", "event"}, {"event", event.to_json()}}); }

void Sandbox::tell_waiting() {
  for (const Event& event : reporter_.flush()) tell(event);
}

}  // namespace space::egress
