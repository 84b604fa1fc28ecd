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

class Dialer {
 public:
  struct Options {
    Resolver::Options resolver;
    std::vector<Cidr> allowed_ranges;  // the operator's: special ranges that may be dialled all the same
    std::chrono::milliseconds patience{10'000};  // for one connection
  };
  Dialer(asio::any_io_executor executor, Options options);

  // `to.name`, or `to.address` when there is no name. Errors: address_refused (permission_denied) when no address may be dialled,
  // name_not_found, resolver_failed, upstream_refused and upstream_timeout (unavailable). Tries up to 4 addresses.
  Task<Dialled> dial(Destination to, std::shared_ptr<const Policy> policy, ResolverCache& cache);

  // Why an address is not dialled, or nullopt. Deny rules of the policy with a range count here too.
  std::optional<std::string> refusal(const Address& address) const;
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
