// Connections to the outside: the name is resolved here and now, its addresses are judged, and exactly what was judged is dialled.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "egress/policy.h"
#include "egress/resolver.h"
#include "http/stream.h"

namespace space::egress {

struct Dialled {
  std::unique_ptr<http::Stream> stream;
  Endpoint to;
};

// Why no gateway dials an address, whatever the policy allows, or nullopt. `allowed_ranges`: what the operator permits all the same;
// `own`: the host's addresses.
std::optional<std::string> address_refusal(const Address& address, const std::vector<Cidr>& allowed_ranges, const std::set<Address>& own);

class Dialer {
 public:
  struct Options {
    Resolver::Options resolver;
    std::vector<Cidr> allowed_ranges;            // the operator's: special ranges that may be dialled all the same
    std::chrono::milliseconds patience{10'000};  // for one connection
  };
  Dialer(asio::any_io_executor executor, Options options);

  // `to.name`, or `to.address` when there is no name. Errors: address_refused (permission_denied) when no address may be dialled,
  // name_not_found, resolver_failed, upstream_refused and upstream_timeout (unavailable), of the first
  // address that was tried. Tries up to 4 addresses that may be dialled, IPv4 first. Where more of IPv4 would take all,
  // the first of IPv6 has the last try, and the one that gave way a fifth.
  Task<Dialled> dial(Destination to, std::shared_ptr<const Policy> policy, ResolverCache& cache);

  void set_own_addresses(std::set<Address> addresses) { own_ = std::move(addresses); }  // the host's
  const Options& options() const { return options_; }

 private:
  Task<Dialled> connect(Endpoint to);
  asio::any_io_executor executor_;
  Options options_;
  Resolver resolver_;
  std::set<Address> own_;
};

}  // namespace space::egress
