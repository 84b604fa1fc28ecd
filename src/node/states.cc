#include "node/states.h"

#include <fmt/format.h>

#include <array>

namespace space::node {
namespace {

using S = SandboxState;
using E = SandboxEvent;

constexpr std::array kTransitions{
    Transition{S::creating, E::created, S::running},   Transition{S::creating, E::failed, S::deleting},
    Transition{S::creating, E::remove, S::deleting},   Transition{S::running, E::pause, S::paused},
    Transition{S::running, E::suspend, S::suspended},  Transition{S::running, E::stop, S::stopped},
    Transition{S::running, E::checkpoint, S::running}, Transition{S::running, E::restore, S::running},
    Transition{S::running, E::vmm_gone, S::ended},     Transition{S::running, E::remove, S::deleting},
    Transition{S::paused, E::resume, S::running},      Transition{S::paused, E::suspend, S::suspended},
    Transition{S::paused, E::stop, S::stopped},        Transition{S::paused, E::wake, S::running},
    Transition{S::paused, E::checkpoint, S::paused},   Transition{S::paused, E::restore, S::running},
    Transition{S::paused, E::vmm_gone, S::ended},      Transition{S::paused, E::remove, S::deleting},
    Transition{S::suspended, E::stop, S::stopped},     Transition{S::suspended, E::wake, S::running},
    Transition{S::suspended, E::start, S::running},    Transition{S::stopped, E::start, S::running},
    Transition{S::ended, E::start, S::running},        Transition{S::suspended, E::restore, S::running},
    Transition{S::suspended, E::remove, S::deleting},  Transition{S::stopped, E::wake, S::running},
    Transition{S::stopped, E::restore, S::running},    Transition{S::stopped, E::remove, S::deleting},
    Transition{S::ended, E::restore, S::running},      Transition{S::ended, E::remove, S::deleting},
    Transition{S::deleting, E::remove, S::deleting},   Transition{S::running, E::update, S::running},
    Transition{S::paused, E::update, S::paused},       Transition{S::suspended, E::update, S::suspended},
    Transition{S::stopped, E::update, S::stopped},     Transition{S::ended, E::update, S::ended},
    Transition{S::deleting, E::removed, S::deleted},   Transition{S::running, E::snapshot, S::running},
    Transition{S::paused, E::snapshot, S::paused},     Transition{S::stopped, E::snapshot, S::stopped},
};

constexpr std::array kStates{S::creating, S::running, S::paused, S::suspended, S::stopped, S::ended, S::deleting, S::deleted};
constexpr std::array kEvents{E::created,    E::failed,   E::pause,   E::resume, E::suspend,  E::stop,   E::wake,   E::start,
                             E::checkpoint, E::snapshot, E::restore, E::update, E::vmm_gone, E::remove, E::removed};

std::string_view meaning(S state) {
  switch (state) {
    case S::creating:
      return "being made; nothing of it survives a restart of node";
    case S::running:
      return "its processes run and its agent answers";
    case S::paused:
      return "in memory, with its vCPUs stopped";
    case S::suspended:
      return "in storage, memory and running programs too; the host's memory and processors are free";
    case S::stopped:
      return "in storage, the disk alone; its programs are over";
    case S::ended:
      return "its VMM is gone (`end_reason` says why); record and disk wait for a start or the delete";
    case S::deleting:
      return "being removed; a restart of node finishes it";
    case S::deleted:
      return "nothing of it is left";
  }
  return {};
}

std::string_view advice(S state) {
  switch (state) {
    case S::creating:
      return "wait until its create has succeeded";
    case S::running:
      return "use it as it is";
    case S::paused:
      return "wake it first";
    case S::suspended:
      return "wake it first";
    case S::stopped:
      return "start it first";
    case S::ended:
      return "start it from its disk, or delete it";
    case S::deleting:
      return "create another one";
    case S::deleted:
      return "create another one";
  }
  return {};
}

}  // namespace

std::span<const Transition> transitions() { return kTransitions; }

std::string_view to_string(S state) {
  switch (state) {
    case S::creating:
      return "creating";
    case S::running:
      return "running";
    case S::paused:
      return "paused";
    case S::suspended:
      return "suspended";
    case S::stopped:
      return "stopped";
    case S::ended:
      return "ended";
    case S::deleting:
      return "deleting";
    case S::deleted:
      return "deleted";
  }
  return "unknown";
}

std::string_view to_string(E event) {
  switch (event) {
    case E::created:
      return "created";
    case E::failed:
      return "failed";
    case E::pause:
      return "pause";
    case E::resume:
      return "resume";
    case E::suspend:
      return "suspend";
    case E::stop:
      return "stop";
    case E::wake:
      return "wake";
    case E::start:
      return "start";
    case E::checkpoint:
      return "checkpoint";
    case E::snapshot:
      return "snapshot";
    case E::restore:
      return "restore";
    case E::update:
      return "update";
    case E::vmm_gone:
      return "vmm_gone";
    case E::remove:
      return "remove";
    case E::removed:
      return "removed";
  }
  return "unknown";
}

std::optional<S> state_from(std::string_view text) {
  for (S state : kStates)
    if (to_string(state) == text) return state;
  return std::nullopt;
}

Result<S> next_state(S from, E event) {
  for (const Transition& t : kTransitions)
    if (t.from == from && t.event == event) return t.to;
  return fail(ErrorKind::conflict, fmt::format("sandbox_{}", to_string(from)),
              fmt::format("the sandbox is {}: {} is not possible now", to_string(from), to_string(event)), std::string(advice(from)));
}

std::string states_page() {
  std::string page =
      "# States of a sandbox\n\n"
      "Made from the table in src/node/states.cc; the test `unit.node` fails when the two differ and says how to make it anew.\n"
      "An event that a row does not name is answered with 409 `sandbox_<state>`.\n\n"
      "| state | meaning |\n|---|---|\n";
  for (S state : kStates) page += fmt::format("| `{}` | {} |\n", to_string(state), meaning(state));
  page += "\n| in state |";
  for (E event : kEvents) page += fmt::format(" {} |", to_string(event));
  page += "\n|---|";
  for (std::size_t i = 0; i < kEvents.size(); ++i) page += "---|";
  page += '\n';
  for (S state : kStates) {
    page += fmt::format("| `{}` |", to_string(state));
    for (E event : kEvents) {
      const auto next = next_state(state, event);
      page += next ? fmt::format(" {} |", to_string(*next)) : " |";
    }
    page += '\n';
  }
  return page;
}

}  // namespace space::node
