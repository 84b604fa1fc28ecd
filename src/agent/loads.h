// What happens after each load of the VM: node's init sets clock, randomness and names, tells the guest's programs, and lets the
// users' processes run. Programs that hold random state of their own cannot be reseeded from outside: the event file and the hooks
// in /etc/space/load.d tell them. Belongs to the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "base/async.h"
#include "base/json.h"

namespace space::agent {

struct Agent;

struct InitRequest {
  std::string nonce, sandbox_id, hostname, machine_id, entropy;
  std::string ca;  // the egress gateway's certificate, PEM; "" leaves what is there
  std::int64_t wall_ns = 0;
  std::map<std::string, std::string> env;
  std::int64_t epoch = 1;
  bool loaded = false;          // the guest comes from storage or is a fork: connections of its old life are ended
  std::uint16_t peer_port = 0;  // of the connection that this request came on, which is of the new one
};
Result<InitRequest> read_init(const json::object& object);

class Loads {
 public:
  static constexpr std::size_t kMostNonces = 4096;  // remembered; the oldest goes first

  explicit Loads(Agent& agent) : agent_(agent) {}
  // conflict/nonce_used for a nonce of an earlier call. On an error nothing was thawed.
  Result<> init(InitRequest request);
  std::uint64_t count() const { return count_; }
  // Tells programs that were started before the load what new ones get: {"loads","env"} in /run/space/environment. Also to be
  // called when the sandbox's environment changes.
  Result<> tell_environment();

 private:
  asio::awaitable<void> run_hooks(std::string folder, std::vector<std::string> env);
  asio::awaitable<void> run_hook(std::string path, std::vector<std::string> env);

  Agent& agent_;
  std::set<std::string, std::less<>> nonces_;
  std::deque<std::string> order_;
  std::uint64_t count_ = 0;
};

}  // namespace space::agent
