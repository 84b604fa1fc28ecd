// What every handler may use. One of each in the role, made by run() or a test; all of it belongs to the role's loop.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "api/keyring.h"
#include "base/async.h"
#include "base/clock.h"
#include "control/egress.h"
#include "control/engine.h"
#include "control/node.h"
#include "control/store.h"

namespace space::build {
class Builds;
}

namespace space::api {

// Answers that hold a secret are kept in memory alone, and only for a while.
struct SecretAnswer {
  std::string body;
  std::int64_t until_us = 0;
};

struct Counters {
  std::map<std::pair<std::string, int>, std::uint64_t> requests;  // by (method, status)
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::size_t streams = 0;  // event streams open now
};

struct Services {
  Services(asio::any_io_executor loop, control::Store& s, control::Engine& e, control::Node& n, KeyRing& k, const Clock& c)
      : executor(loop), store(s), engine(e), node(n), keys(k), clock(c), appended(loop) {
    store.on_events([this] {
      ++appended_count;
      appended.notify_all();
    });
  }

  asio::any_io_executor executor;
  control::Store& store;
  control::Engine& engine;
  control::Node& node;
  KeyRing& keys;
  const Clock& clock;
  control::Egress* egress = nullptr;  // without: sandboxes have no network (tests of other things)
  std::map<std::string, std::unique_ptr<control::PolicyChange>> policy_changes;  // of updates under way, by operation

  build::Builds* builds = nullptr;  // without: no templates are built (tests of other things)

  // Has the gateway agree with the store in a moment, as after every event.
  void reconcile_egress() {
    ++appended_count;
    appended.notify_all();
  }

  Signal appended;  // events may have been appended; `appended_count` moves with it, so that nothing is missed
  std::uint64_t appended_count = 0;
  std::set<std::pair<std::string, std::string>> in_flight;  // (tenant, Idempotency-Key) of requests under way
  std::map<std::pair<std::string, std::string>, SecretAnswer> secret_answers;
  Counters counters;
  bool stopping = false;        // event streams end
  bool tenants_on_tcg = false;  // tenants may share a host where the jail alone is the boundary
};

}  // namespace space::api
