// Names to addresses, at connect time, by the gateway's own questions to the host's resolvers. Nothing of a guest's packets goes
// into them but a canonical name that the policy allows. /etc/hosts, search lists and mDNS are never asked.
#pragma once

#include <chrono>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/async.h"
#include "egress/dns_message.h"
#include "egress/limits.h"
#include "egress/socket_address.h"

namespace space::egress {

// Of one sandbox: what one has asked for tells another nothing, and no other's answers reach it.
class ResolverCache {
 public:
  static constexpr std::size_t kMost = 1024;
  using Time = std::chrono::steady_clock::time_point;
  const std::vector<Address>* find(const std::string& name, Time now) const;
  void put(const std::string& name, std::vector<Address> addresses, std::chrono::seconds life, Time now);
  // Whether this name may be asked for now: names under a wildcard must not become a channel of any width. Many connections to
  // one name that open together count as one.
  bool may_ask(const std::string& name, Time now);

 private:
  struct Entry {
    std::vector<Address> addresses;
    Time until;
  };
  std::map<std::string, Entry> entries_;
  std::map<std::string, Time> asked_;  // within the last second; no longer than the rate lets it grow
  Bucket questions_{20};
};

class Resolver {
 public:
  struct Options {
    std::vector<Endpoint> servers;             // asked in turn
    std::chrono::milliseconds patience{2000};  // for one answer
    int rounds = 2;
  };
  Resolver(asio::any_io_executor executor, Options options) : executor_(std::move(executor)), options_(std::move(options)) {}

  // At least one address, IPv4 first, then IPv6; both are asked for. `not_found`/name_not_found when there is none,
  // `unavailable`/resolver_failed without an answer.
  Task<std::vector<Address>> resolve(std::string name, ResolverCache& cache);

  // The `nameserver` lines of a resolv.conf (resolv.conf(5)); others are not looked at.
  static std::vector<Endpoint> parse_resolv_conf(std::string_view text);

 private:
  Task<DnsReply> ask(std::string name, DnsType type);
  Task<DnsReply> ask_server(Endpoint server, std::string name, DnsType type, bool tcp);
  Task<DnsReply> follow(std::string name, DnsType type);
  asio::any_io_executor executor_;
  Options options_;
};

}  // namespace space::egress
