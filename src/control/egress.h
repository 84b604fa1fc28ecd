// The egress gateway as the control plane sees it: typed calls over its Unix socket (docs/egress.md). The store has the policies;
// the gateway is told, and told again when it does not know the present generation. A gateway that cannot be reached gives
// unavailable/egress_unavailable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/json.h"
#include "control/egress_rows.h"
#include "http/client.h"

namespace space::control {

class Store;

class Egress {
 public:
  Egress(asio::any_io_executor executor, std::string socket_path);

  // Whether the gateway would take this document ({"policy","limits"?,"credentials"?}); its own words when not.
  Task<> check(std::string document);
  // In force when it returns. A generation that the gateway has already is a success.
  Task<> put(EgressSettings settings);
  Task<> remove(std::string sandbox);
  Task<json::object> ask(std::string method, std::string target, std::string body = {});
  // Makes the gateway agree with the store: policies that it lacks are put, and sandboxes that the store does not know are removed, where
  // `complete` says that it knows all there are. A policy that is later than the store's is from a database that was lost since: the
  // store takes it up.
  Task<> reconcile(Store& store, bool complete);

  // For what http::forward carries: event streams, credentials.
  http::Client& forwarding() { return forwarding_; }

 private:
  http::Client client_, forwarding_;
};

Error egress_unavailable(std::string_view why);

}  // namespace space::control
