#include "egress/resolver.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/udp.hpp>
#include <fmt/format.h>
#include <optional>

#include "base/random.h"

namespace space::egress {
namespace {

constexpr int kMostFollowed = 8;
constexpr std::chrono::milliseconds kSecondPatience{300};
constexpr std::chrono::seconds kLongestLife{300}, kUnansweredLife{30}, kMissingLife{5};

asio::ip::address to_asio(const Address& address) {
  if (address.is_v4()) {
    asio::ip::address_v4::bytes_type bytes;
    std::copy_n(address.bytes().begin() + 12, 4, bytes.begin());
    return asio::ip::address_v4(bytes);
  }
  asio::ip::address_v6::bytes_type bytes;
  std::copy(address.bytes().begin(), address.bytes().end(), bytes.begin());
  return asio::ip::address_v6(bytes);
}

tl::unexpected<Error> no_answer() {
  return fail(ErrorKind::unavailable, "resolver_failed", "no resolver of this host answered",
              "check the host's resolv.conf or --egress-resolver");
}

}  // namespace

const std::vector<Address>* ResolverCache::find(const std::string& name, Time now) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && now < found->second.until ? &found->second.addresses : nullptr;
}

void ResolverCache::put(const std::string& name, std::vector<Address> addresses, std::chrono::seconds life, Time now) {
  if (entries_.size() >= kMost) std::erase_if(entries_, [now](const auto& entry) { return entry.second.until <= now; });
  if (entries_.size() >= kMost) entries_.erase(entries_.begin());
  entries_[name] = {std::move(addresses), now + life};
}

bool ResolverCache::may_ask(const std::string& name, Time now) {
  std::erase_if(asked_, [now](const auto& asked) { return now - asked.second >= std::chrono::seconds(1); });
  if (asked_.contains(name)) return true;
  if (!questions_.try_take(1, now)) return false;
  asked_.emplace(name, now);
  return true;
}

std::vector<Endpoint> Resolver::parse_resolv_conf(std::string_view text) {
  std::vector<Endpoint> servers;
  while (!text.empty() && servers.size() < 3) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    constexpr std::string_view kWord = "nameserver";
    if (!line.starts_with(kWord)) continue;
    line.remove_prefix(kWord.size());
    const auto from = line.find_first_not_of(" \t");
    if (from == std::string_view::npos || from == 0) continue;
    line = line.substr(from);
    line = line.substr(0, line.find_first_of(" \t\r#;"));
    if (auto address = Address::parse(line)) servers.push_back({*address, 53});
  }
  return servers;
}

Task<std::vector<Address>> Resolver::resolve(std::string name, ResolverCache& cache) {
  using namespace asio::experimental::awaitable_operators;
  const auto missing = [&] {
    return fail(ErrorKind::not_found, "name_not_found", fmt::format("{} has no address", name), "check the name");
  };
  if (const auto* known = cache.find(name, std::chrono::steady_clock::now())) {
    if (known->empty()) co_return missing();
    co_return *known;
  }
  // What a single label means depends on the machine that asks.
  if (name.find('.') == std::string::npos || name.ends_with(".localhost")) co_return missing();
  if (!cache.may_ask(name, std::chrono::steady_clock::now()))
    co_return fail(ErrorKind::resource_exhausted, "too_many_lookups", "this sandbox looked up more than 20 new names in a second",
                   "wait a moment");
  // Both at once: a host that has both is reached by IPv6 where its IPv4 is not. Servers that never answer the second question are met
  // often enough that the first one's answer does not wait long for it.
  std::optional<Result<DnsReply>> v4, v6;
  Signal found(executor_);
  const auto known_v4 = [&v4] { return v4 && *v4 && !(*v4)->addresses.empty(); };
  auto ask_v4 = [&]() -> asio::awaitable<void> {
    v4 = co_await follow(name, DnsType::a);
    if (known_v4()) found.notify_all();
  };
  auto ask_v6 = [&]() -> asio::awaitable<void> { v6 = co_await follow(name, DnsType::aaaa); };
  auto enough = [&]() -> asio::awaitable<void> {
    while (!known_v4()) co_await found.wait();
    co_await sleep_for(kSecondPatience);
  };
  co_await ((ask_v4() && ask_v6()) || enough());
  std::vector<Address> addresses;
  std::chrono::seconds life = kLongestLife;
  for (const auto* reply : {&v4, &v6}) {
    if (!*reply || !**reply) {
      // Asked again soon, but not for the sake of servers that never answer the second question: each time costs kSecondPatience.
      if (reply == &v4) life = std::min(life, kUnansweredLife);
      continue;
    }
    addresses.insert(addresses.end(), (**reply)->addresses.begin(), (**reply)->addresses.end());
    if (!(**reply)->addresses.empty()) life = std::min(life, std::max(std::chrono::seconds((**reply)->ttl_s), std::chrono::seconds(1)));
  }
  if (addresses.empty()) {
    if (!*v4) co_return fail(std::move(*v4).error());
    if (!*v6) co_return fail(std::move(*v6).error());
    life = kMissingLife;
  }
  cache.put(name, addresses, life, std::chrono::steady_clock::now());
  if (addresses.empty()) co_return missing();
  co_return addresses;
}

Task<DnsReply> Resolver::follow(std::string name, DnsType type) {
  std::uint32_t ttl = 3600;
  for (int hops = 0; hops < kMostFollowed; ++hops) {
    CO_TRY(DnsReply reply, co_await ask(name, type));
    ttl = std::min(ttl, reply.ttl_s);
    reply.ttl_s = ttl;
    if (reply.code == DnsCode::no_such_name) co_return DnsReply{};
    if (!reply.addresses.empty() || reply.alias.empty() || reply.alias == name) co_return reply;
    if (reply.alias.find('.') == std::string::npos || reply.alias.ends_with(".localhost")) co_return DnsReply{};
    name = reply.alias;
  }
  co_return fail(ErrorKind::unavailable, "resolver_failed", "the name is an alias of an alias, too many times over");
}

Task<DnsReply> Resolver::ask(std::string name, DnsType type) {
  for (int round = 0; round < options_.rounds; ++round) {
    for (const Endpoint& server : options_.servers) {
      auto reply = co_await ask_server(server, name, type, false);
      if (reply && reply->truncated) reply = co_await ask_server(server, name, type, true);
      if (!reply) continue;
      if (reply->code == DnsCode::no_error || reply->code == DnsCode::no_such_name) co_return reply;
    }
  }
  co_return no_answer();
}

Task<DnsReply> Resolver::ask_server(Endpoint server, std::string name, DnsType type, bool tcp) {
  using namespace asio::experimental::awaitable_operators;
  std::uint16_t id = 0;
  random_bytes(std::as_writable_bytes(std::span(&id, 1)));
  CO_TRY(const std::string query, dns_query(id, name, type));
  const asio::ip::address address = to_asio(server.address);
  auto over_udp = [&]() -> Task<DnsReply> {
    // A fresh socket each time: its random port is what a forger would have to guess beside the id. Connected, so that only
    // this server's packets arrive.
    asio::ip::udp::socket socket(executor_);
    boost::system::error_code error;
    socket.open(address.is_v4() ? asio::ip::udp::v4() : asio::ip::udp::v6(), error);
    if (!error) socket.connect({address, server.port}, error);
    if (!error) socket.send(asio::buffer(query), 0, error);
    if (error) co_return fail_errno(error.value(), "ask a resolver");
    std::array<char, 4096> buffer;
    for (;;) {
      const auto [failed, n] = co_await socket.async_receive(asio::buffer(buffer), kAsTuple);
      if (failed) co_return fail_errno(failed.value(), "hear from a resolver");
      auto reply = parse_dns_reply({buffer.data(), n}, id, name, type);
      if (reply) co_return reply;
      if (reply.error().code == "dns_chain_too_long") co_return reply;
    }
  };
  auto over_tcp = [&]() -> Task<DnsReply> {
    asio::ip::tcp::socket socket(executor_);
    const auto [failed] = co_await socket.async_connect({address, server.port}, kAsTuple);
    if (failed) co_return fail_errno(failed.value(), "connect to a resolver");
    std::string framed{static_cast<char>(query.size() >> 8), static_cast<char>(query.size())};
    framed += query;
    const auto [unsent, sent] = co_await asio::async_write(socket, asio::buffer(framed), kAsTuple);
    if (unsent) co_return fail_errno(unsent.value(), "ask a resolver");
    std::array<unsigned char, 2> head;
    const auto [cut, got] = co_await asio::async_read(socket, asio::buffer(head), kAsTuple);
    if (cut) co_return fail_errno(cut.value(), "hear from a resolver");
    std::string body(static_cast<std::size_t>(head[0] << 8 | head[1]), '\0');
    const auto [short_of, read] = co_await asio::async_read(socket, asio::buffer(body), kAsTuple);
    if (short_of) co_return fail_errno(short_of.value(), "hear from a resolver");
    co_return parse_dns_reply(body, id, name, type);
  };
  auto exchange = [&]() -> Task<DnsReply> {
    if (tcp) co_return co_await over_tcp();
    co_return co_await over_udp();
  };
  auto first = co_await (exchange() || sleep_for(options_.patience));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return no_answer();
}

}  // namespace space::egress
