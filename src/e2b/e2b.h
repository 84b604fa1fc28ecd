// E2B's API in front of SPACE: unmodified E2B clients create sandboxes with it, and their traffic into sandboxes passes through.
// The role `api` asks `takes` about every request before its own routes. Everything belongs to the role's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/clock.h"
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
  const Clock& clock;
  // Of an API key that must have the scope.
  std::function<Task<control::Key>(std::string secret, control::Scope needed)> authenticate;
};

struct Options {
  std::string domain;            // names PORT-ID.<domain> lead into sandboxes; "": only the headers do
  bool allow_unsecured = false;  // sandboxes whose files and processes need no token
};

struct State;

class E2b {
 public:
  E2b(Parts parts, Options options);
  ~E2b();
  // A path of E2B's API, or traffic for a sandbox: by its host name, or by headers where the host is an address or localhost.
  bool takes(const http::Exchange& exchange) const;
  Task<> serve(http::Exchange& exchange);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace space::e2b
