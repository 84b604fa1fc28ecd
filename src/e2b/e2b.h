// E2B's API in front of SPACE: unmodified E2B clients create sandboxes with it, and their traffic into sandboxes passes through.
// It stands in front of the role `api`'s own routes. Everything belongs to the role's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/clock.h"
#include "build/builds.h"
#include "control/egress.h"
#include "control/engine.h"
#include "control/node.h"
#include "control/store.h"
#include "http/server.h"

namespace space::e2b {

struct Parts {  // all outlive the E2b
  asio::any_io_executor executor;
  control::Store& store;
  control::Engine& engine;
  control::Node& node;
  control::Egress* egress;  // nullptr: sandboxes have no network
  const Clock& clock;
  // Of an API key that must have the scope.
  std::function<Task<control::Key>(std::string secret, control::Scope needed)> authenticate;
  build::Builds* builds = nullptr;  // without: no templates are built
};

struct Options {
  std::string domain;            // names PORT-ID.<domain> lead into sandboxes; "": only the headers do
  bool allow_unsecured = false;  // sandboxes whose files and processes need no token
  bool tls = false;              // the server's own address is served over TLS
};

struct State;

class E2b {
 public:
  E2b(Parts parts, Options options);
  ~E2b();
  // Serves a path of E2B's API, and traffic for a sandbox: by headers where the host is an address or localhost; by host name to the
  // in-sandbox protocol, and to any port of a sandbox that was made through E2B's API. Everything else goes to `next`, which outlives
  // the exchange.
  Task<> serve(http::Exchange& exchange, const http::Handler& next);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace space::e2b
