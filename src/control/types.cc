#include "control/types.h"

#include <algorithm>
#include <array>
#include <utility>

namespace space::control {
namespace {

constexpr std::array kSandboxNames{"creating", "running", "paused", "deleting", "deleted", "failed", "ended", "suspended", "stopped"};
constexpr std::array kOperationNames{"pending", "running", "succeeded", "failed", "cancelled"};
constexpr std::array kKindNames{"create", "delete",     "pause",   "resume", "suspend", "wake",    "stop",
                                "start",  "checkpoint", "restore", "fork",   "update",  "snapshot"};

template <class E, std::size_t N>
std::optional<E> find(const std::array<const char*, N>& names, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == text) return static_cast<E>(i);
  return std::nullopt;
}

using S = SandboxState;
using O = OperationState;

// Everything that may happen to a sandbox. `deleted` has no row any more: it is seen in events and answers only.
constexpr std::pair<S, S> kSandboxMoves[] = {
    {S::creating, S::running},   {S::creating, S::failed},   {S::creating, S::deleting}, {S::creating, S::deleted},  // cancelled
    {S::running, S::paused},     {S::running, S::suspended}, {S::running, S::stopped},   {S::running, S::deleting},
    {S::running, S::ended},      {S::paused, S::running},    {S::paused, S::suspended},  {S::paused, S::stopped},
    {S::paused, S::deleting},    {S::paused, S::ended},      {S::suspended, S::running}, {S::suspended, S::stopped},
    {S::suspended, S::deleting}, {S::suspended, S::ended},   {S::stopped, S::running},   {S::stopped, S::deleting},
    {S::stopped, S::ended},      {S::ended, S::running},     {S::failed, S::deleting},   {S::ended, S::deleting},
    {S::deleting, S::deleted},
};

constexpr std::pair<O, O> kOperationMoves[] = {
    {O::pending, O::running},   {O::pending, O::succeeded}, {O::pending, O::failed},    {O::pending, O::cancelled},
    {O::running, O::succeeded}, {O::running, O::failed},    {O::running, O::cancelled},
};

}  // namespace

bool is_volume(const Sandbox& sandbox) {
  const auto kind = sandbox.metadata.find(kKindLabel);
  return kind != sandbox.metadata.end() && kind->second == kVolumeKind && sandbox.metadata.contains(kVolumeName);
}

bool may_begin(OperationKind kind, SandboxState state) {
  using K = OperationKind;
  switch (kind) {
    case K::create:
    case K::remove:
      return false;
    case K::pause:
      return state == S::running;
    case K::resume:
      return state == S::paused;
    case K::suspend:
    case K::checkpoint:
      return state == S::running || state == S::paused;
    case K::snapshot:
      return state == S::running || state == S::paused || state == S::stopped;
    case K::wake:
      return state == S::paused || state == S::suspended || state == S::stopped;
    case K::stop:
      return state == S::running || state == S::paused || state == S::suspended;
    case K::start:
      return state == S::stopped || state == S::suspended || state == S::ended;
    case K::restore:
    case K::update:
    case K::fork:
      return state == S::running || state == S::paused || state == S::suspended || state == S::stopped || state == S::ended;
  }
  return false;
}

std::optional<SandboxState> state_after(OperationKind kind) {
  using K = OperationKind;
  switch (kind) {
    case K::create:
    case K::resume:
    case K::wake:
    case K::start:
    case K::restore:
      return S::running;
    case K::pause:
      return S::paused;
    case K::suspend:
      return S::suspended;
    case K::stop:
      return S::stopped;
    case K::remove:
      return S::deleted;
    case K::checkpoint:
    case K::update:
    case K::snapshot:
    case K::fork:
      return std::nullopt;
  }
  return std::nullopt;
}

bool can_move(SandboxState from, SandboxState to) {
  return std::ranges::find(kSandboxMoves, std::pair(from, to)) != std::end(kSandboxMoves);
}
bool can_move(OperationState from, OperationState to) {
  return std::ranges::find(kOperationMoves, std::pair(from, to)) != std::end(kOperationMoves);
}
bool is_finished(OperationState state) { return state != O::pending && state != O::running; }

std::string_view to_string(SandboxState state) { return kSandboxNames[static_cast<std::size_t>(state)]; }
std::string_view to_string(OperationState state) { return kOperationNames[static_cast<std::size_t>(state)]; }
std::string_view to_string(OperationKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
std::optional<SandboxState> sandbox_state(std::string_view text) { return find<SandboxState>(kSandboxNames, text); }
std::optional<OperationState> operation_state(std::string_view text) { return find<OperationState>(kOperationNames, text); }
std::optional<OperationKind> operation_kind(std::string_view text) { return find<OperationKind>(kKindNames, text); }

}  // namespace space::control
