// The egress gateway as the control plane sees it: typed calls over its Unix socket (docs/egress.md). The store has the policies;
// the gateway is told, and told again when it does not know the present generation. A gateway that cannot be reached gives
// unavailable/egress_unavailable.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/json.h"
#include "control/egress_rows.h"
#include "http/client.h"

namespace space::control {

class Store;

// A change of a policy between its announcement and its end. While it lives reconcile() leaves it to whoever holds it.
class PolicyChange {
 public:
  using Ids = std::shared_ptr<std::set<std::string>>;
  PolicyChange(Ids under_way, std::string id) : under_way_(std::move(under_way)), id_(std::move(id)) { under_way_->insert(id_); }
  ~PolicyChange() { under_way_->erase(id_); }
  PolicyChange(const PolicyChange&) = delete;
  PolicyChange& operator=(const PolicyChange&) = delete;
  const std::string& id() const { return id_; }

 private:
  Ids under_way_;
  std::string id_;
};

class Egress {
 public:
  Egress(asio::any_io_executor executor, std::string socket_path);

  // Whether the gateway would take this document ({"policy","limits"?,"credentials"?}); its own words when not.
  Task<> check(std::string document);
  // Before a policy is replaced in the store: from now on a gateway that is begun anew serves this sandbox nothing until it knows what
  // came of it. So no gateway serves an older policy than the store has, whoever dies when, and without asking anybody: one that
  // finds no change announced serves what it has on its disk. Durable when it returns; what it gives is kept until the store was
  // written to, or was not.
  Task<std::unique_ptr<PolicyChange>> announce(std::string sandbox);
  // What came of it is in the store: `settings`, or a later change's. In force when it returns.
  Task<> conclude(EgressSettings settings, std::string change);
  // It came to nothing. Where the gateway is not reached, reconcile() makes up for it.
  asio::awaitable<void> withdraw(std::string sandbox, std::string change);
  // In force when it returns, and these changes are over. A generation that the gateway has already is a success, but
  // unavailable/policy_held where another change that nobody has settled leaves the sandbox without network: reconcile() settles it.
  Task<> put(EgressSettings settings, std::vector<std::string> settles = {});
  Task<> remove(std::string sandbox);
  Task<json::object> ask(std::string method, std::string target, std::string body = {});
  // Makes the gateway agree with the store: policies that it lacks are put, changes that nobody brought to their end are settled, and
  // sandboxes that the store does not know are removed, where `complete` says that it knows all there are. A policy that is later than
  // the store's is from a database that was lost since: the store takes it up.
  Task<> reconcile(Store& store, bool complete);

  // For what http::forward carries: event streams, credentials.
  http::Client& forwarding() { return forwarding_; }

 private:
  http::Client client_, forwarding_;
  PolicyChange::Ids under_way_ = std::make_shared<std::set<std::string>>();
};

Error egress_unavailable(std::string_view why);

}  // namespace space::control
