#include "egress/dialer.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <iterator>
#include <netinet/tcp.h>

namespace space::egress {
namespace {

constexpr std::size_t kMostTries = 4;

// A dead peer on a quiet connection is noticed within minutes.
void keep_alive(int fd) {
  const int on = 1, idle_s = 120, interval_s = 30, probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace

Dialer::Dialer(asio::any_io_executor executor, Options options)
    : executor_(executor), options_(std::move(options)), resolver_(executor, options_.resolver) {}

std::optional<std::string> address_refusal(const Address& address, const std::vector<Cidr>& allowed_ranges, const std::set<Address>& own) {
  for (const Cidr& range : allowed_ranges)
    if (range.contains(address)) return std::nullopt;
  if (own.contains(address)) return fmt::format("{} is an address of the host itself", address.text());
  if (const auto why = special_range(address)) return fmt::format("{} is a {} address", address.text(), *why);
  return std::nullopt;
}

Task<Dialled> Dialer::dial(Destination to, std::shared_ptr<const Policy> policy, ResolverCache& cache) {
  std::vector<Address> addresses;
  if (to.name.empty() && to.address) {
    addresses.push_back(*to.address);
  } else {
    CO_TRY(addresses, co_await resolver_.resolve(to.name, cache));
  }
  // What was tried says more than what may not be; and of a host that is down, its first address more than that this machine has no IPv6.
  std::optional<Error> refused, failed;
  const auto may_be_dialled = [&](const Address& address) {
    if (const auto why = address_refusal(address, options_.allowed_ranges, own_)) {
      refused = Error{ErrorKind::permission_denied, "address_refused", *why,
                      "only public addresses are reached; the operator can permit ranges with --egress-allow-range"};
      return false;
    }
    // A range that is denied stays denied however the guest came to it.
    const Verdict verdict = policy->connect({to.name, address, to.port});
    if (!verdict.allowed) refused = Error{ErrorKind::permission_denied, "address_refused", verdict.reason, ""};
    return verdict.allowed;
  };
  std::vector<Address> good;
  std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(good), may_be_dialled);
  std::size_t most = kMostTries;
  const auto six = std::find_if(good.begin(), good.end(), [](const Address& address) { return !address.is_v4(); });
  if (six != good.end() && static_cast<std::size_t>(six - good.begin()) >= kMostTries) {
    // The IPv4 address that gives way has its turn after it: this machine may have no IPv6.
    std::rotate(good.begin() + kMostTries - 1, six, six + 1);
    ++most;
  }
  std::size_t tries = 0;
  for (const Address& address : good) {
    if (tries == most) break;
    if (!may_be_dialled(address)) continue;  // the host's own addresses may be others by now
    ++tries;
    auto dialled = co_await connect({address, to.port});
    if (dialled) co_return dialled;
    if (!failed) failed = std::move(dialled).error();
  }
  co_return fail(failed ? std::move(*failed) : std::move(*refused));
}

Task<Dialled> Dialer::connect(Endpoint to) {
  using namespace asio::experimental::awaitable_operators;
  SocketAddress address = to_socket_address(to);
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) co_return fail_errno(errno, "make a socket");
  keep_alive(fd.get());
  CO_TRY(http::Socket socket, http::adopt_socket(executor_, std::move(fd)));
  const asio::generic::stream_protocol::endpoint endpoint(address.get(), address.length, IPPROTO_TCP);
  auto outcome = co_await (socket.async_connect(endpoint, kAsTuple) || sleep_for(options_.patience));
  if (outcome.index() == 1)
    co_return fail(ErrorKind::unavailable, "upstream_timeout", fmt::format("{} did not answer in time", to.text()), "try again later");
  const auto [error] = std::get<0>(outcome);
  if (error)
    co_return fail(ErrorKind::unavailable, "upstream_refused", fmt::format("{} cannot be reached: {}", to.text(), error.message()),
                   "try again later");
  Dialled dialled{http::make_plain_stream(std::move(socket)), to};
  co_return dialled;
}

}  // namespace space::egress
