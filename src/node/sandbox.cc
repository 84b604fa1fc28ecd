#include "node/sandbox.h"

#include <fmt/format.h>

namespace space::node {

Result<std::shared_ptr<wire::AgentClient>> Sandbox::agent() const {
  const auto refuse = [](std::string_view state, std::string_view next) {
    return fail(ErrorKind::conflict, fmt::format("sandbox_{}", state), fmt::format("the sandbox is {}", state), std::string(next));
  };
  if (gone || removing || record.state == SandboxState::deleting) return refuse("deleting", "create another one");
  used = std::chrono::steady_clock::now();
  if (resting) return refuse("busy", "wait until its operation is over");
  switch (record.state) {
    case SandboxState::running:
      return machine.agent;
    case SandboxState::creating:
      return refuse("creating", "wait until its create has succeeded");
    case SandboxState::paused:
      return refuse("paused", "wake it first");
    case SandboxState::suspended:
      return refuse("suspended", "wake it first");
    case SandboxState::stopped:
      return refuse("stopped", "start it first");
    default:
      return refuse("ended", "delete it and create another one");
  }
}

}  // namespace space::node
