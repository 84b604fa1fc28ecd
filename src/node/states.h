// The states of a sandbox and the one table of what may happen in each. What is not in the table cannot happen.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::node {

enum class SandboxState {
  creating,  // no answer has been given yet; nothing of it survives a restart of node
  running,
  paused,     // in memory, vCPUs stopped
  suspended,  // in storage: memory, devices and disk; no VMM
  stopped,    // its disk alone; no VMM
  ended,      // its VMM is gone; record and disk wait for the delete
  deleting,
  deleted,  // never stored: the record is gone
};

enum class SandboxEvent {
  created,  // the agent took the identity and the record is durable
  failed,   // a create that did not work out, or was overtaken by a delete
  pause,
  resume,
  suspend,
  stop,
  wake,   // resume, restore from storage, or start from the disk: whichever the state asks for
  start,  // from the disk: memory is given up
  checkpoint,
  snapshot,  // of its disk alone
  restore,   // back to a checkpoint or snapshot of its own
  update,    // settings
  vmm_gone,  // the VMM process ended, or was not there after a restart
  remove,
  removed,  // nothing of it is left
};

struct Transition {
  SandboxState from;
  SandboxEvent event;
  SandboxState to;
};

std::span<const Transition> transitions();
std::string_view to_string(SandboxState state);
std::string_view to_string(SandboxEvent event);
std::optional<SandboxState> state_from(std::string_view text);

// The state after `event`, or conflict/sandbox_<state> with what to do instead.
Result<SandboxState> next_state(SandboxState from, SandboxEvent event);

// docs/states.md, made of the table.
std::string states_page();

}  // namespace space::node
