#include "control/types.h"

#include <algorithm>
#include <array>
#include <utility>

namespace space::control {
namespace {

constexpr std::array kSandboxNames{"creating", "running", "paused", "deleting", "deleted", "failed", "ended"};
constexpr std::array kOperationNames{"pending", "running", "succeeded", "failed", "cancelled"};
constexpr std::array kKindNames{"create", "delete", "pause", "resume"};

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
    {S::creating, S::running}, {S::creating, S::failed}, {S::creating, S::deleting}, {S::creating, S::deleted},  // cancelled
    {S::running, S::paused},   {S::running, S::deleting}, {S::running, S::ended},
    {S::paused, S::running},   {S::paused, S::deleting},  {S::paused, S::ended},
    {S::failed, S::deleting},  {S::ended, S::deleting},   {S::deleting, S::deleted},
};

constexpr std::pair<O, O> kOperationMoves[] = {
    {O::pending, O::running},   {O::pending, O::succeeded}, {O::pending, O::failed}, {O::pending, O::cancelled},
    {O::running, O::succeeded}, {O::running, O::failed},    {O::running, O::cancelled},
};

}  // namespace

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
