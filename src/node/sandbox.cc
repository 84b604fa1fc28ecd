#include "node/sandbox.h"

#include <fmt/format.h>

namespace space::node {

Result<std::shared_ptr<wire::AgentClient>> Sandbox::agent() const {
  const auto refuse = [](std::string_view state, std::string_view next) {
    return fail(ErrorKind::conflict, fmt::format("sandbox_{}", state), fmt::format("the sandbox is {}", state), std::string(next));
  };
  if (gone || removing || record.state == SandboxState::deleting) return refuse("deleting", "create another one");
  switch (record.state) {
    case SandboxState::running: return machine.agent;
    case SandboxState::creating: return refuse("creating", "wait until its create has succeeded");
    case SandboxState::paused: return refuse("paused", "resume it first");
    default: return refuse("ended", "delete it and create another one");
  }
}

}  // namespace space::node
