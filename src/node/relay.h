// Bytes between a client and a guest's agent, both ways, with constant memory. Nothing is copied on trust: the agent gets a target
// built of known parameters, the client gets a status and headers that node chose. The guest decides about the bytes alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "http/server.h"
#include "node/sandbox.h"

namespace space::node {

inline constexpr std::size_t kErrorAnswer = 64 << 10;  // of what the agent says beside a status that is not 2xx

// A request target of the agent: a fixed path and parameters out of a list.
class AgentTarget {
 public:
  explicit AgentTarget(std::string path) : text_(std::move(path)) {}
  // Takes over those query parameters of `exchange`; another or a repeated one is invalid_argument/unknown_parameter.
  Result<> copy(const http::Exchange& exchange, const std::vector<std::string_view>& allowed);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool has_query_ = false;
};

// The client's body to the agent, its JSON answer back. `doing` as in guest_error.
Task<> relay_up(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::string method, AgentTarget target, std::string doing);
// The agent's bytes to the client, as application/octet-stream; GET and HEAD, with Range.
Task<> relay_down(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, AgentTarget target, std::string doing);
// A small JSON request and its JSON answer.
Task<> relay_json(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::string method, AgentTarget target, std::string doing);
// The agent's server-sent events, each parsed and written anew; `names` are the events there may be. A pause does not end it.
Task<> relay_events(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, AgentTarget target, std::vector<std::string_view> names,
                    std::string doing);

}  // namespace space::node
