// node as the control plane sees it: typed calls over its Unix socket. What node answers is read strictly, since guests stand
// behind it; a node that cannot be reached, or whose answer broke off, gives unavailable/node_unavailable.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/clock.h"
#include "base/json.h"
#include "control/types.h"
#include "http/client.h"

namespace space::control {

struct NodeDone {
  std::string template_digest;            // "" where node gave none
  std::vector<Span> spans;                // start_us from node's own start
  std::int64_t cpus = 0, memory_mib = 0;  // of its machine now: a restore may bring another size back. 0 where node gave none
};

struct NodeSandbox {
  std::string id, tenant, state, end_reason;
  std::int64_t idle_ms = 0;  // since its last session, request or traffic
  std::string kept_digest;   // of what node keeps for the store (adopt.h), "" for nothing
  // How hard its processors worked, in percent of one core (101: more than one), and how many ms ago it last was as much.
  struct Worked {
    std::int64_t percent = 0, ms = 0;
  };
  std::vector<Worked> worked = {};
  // For how long nobody used it, in ms, where more work than `cpu_percent` is use.
  std::int64_t unused_ms(std::int64_t cpu_percent) const;
};

// All that node's record has for the store of one sandbox.
struct NodeRecord {
  Sandbox sandbox;
  std::string kept;
};

struct TemplateSize {
  std::int64_t cpus = 1, memory_mib = 512, disk_mib = 4096;
};

class Node {
 public:
  Node(asio::any_io_executor executor, std::string socket_path, const Clock& clock);
  ~Node();

  // All of them are idempotent by (sandbox, operation): they may be repeated after a lost answer.
  Task<NodeDone> create(const Sandbox& sandbox, const Operation& operation, std::string kept);
  Task<NodeDone> remove(std::string sandbox, std::string operation);  // what node does not know is gone already
  // pause, resume, suspend, wake, stop, start, checkpoint, snapshot, restore; `body` names the operation.
  Task<NodeDone> act(std::string sandbox, std::string verb, json::object body);

  // Whether this attach token opens this command session: unauthenticated/token_invalid, gone/token_expired.
  Task<> may_attach(std::string sandbox, std::string session, std::string token);

  Task<std::vector<NodeSandbox>> inventory();
  Task<NodeRecord> look(std::string sandbox);
  Task<> keep(std::string sandbox, std::string kept);
  Task<json::object> info();
  // The default size of a template. Remembered for a few seconds, so that a create costs no question. template_not_found.
  Task<TemplateSize> template_size(std::string reference);
  void forget_template_sizes();

  // Node's own events until the stream breaks: `connected` once, then `ended` for every sandbox that ended by itself, `kept` for
  // every one whose disk was kept by itself, and `wanted` for every volume that rests while a running sandbox has it mounted.
  using Told = std::function<void(std::string sandbox, std::string reason)>;
  Task<> follow(std::function<void()> connected, Told ended, Told kept = {}, Told wanted = {});

  // For the data plane, which http::forward carries: many connections, no long waits.
  http::Client& forwarding() { return *forwarding_; }
  http::Client& ports() { return *ports_; }  // to servers in guests: an answer may take its time

  // False after a call found nobody there, until one finds somebody. `down_since_us` is the monotonic time of the change.
  bool reachable() const { return reachable_; }
  std::int64_t down_since_us() const { return down_since_us_; }

 private:
  Task<json::object> ask(std::string method, std::string target, std::string body = {}, http::Headers headers = {});
  Task<NodeDone> change(std::string method, std::string target, std::string body);
  void seen(bool there);

  const Clock& clock_;
  std::unique_ptr<http::Client> client_, ports_, forwarding_, watching_;
  bool reachable_ = false;
  std::int64_t down_since_us_ = 0;
  struct Remembered {
    TemplateSize size;
    std::int64_t until_us = 0;
  };
  std::map<std::string, Remembered> sizes_;
};

Error node_unavailable(std::string_view why);

}  // namespace space::control
