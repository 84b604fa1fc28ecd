#include "api/waking.h"

#include "base/random.h"

namespace space::api {

using control::Sandbox;
using control::SandboxState;

Task<Sandbox> awake(Services& services, Sandbox sandbox) {
  constexpr std::chrono::seconds kLongest{90};
  const auto rests = [](SandboxState state) { return state == SandboxState::paused || state == SandboxState::suspended; };
  const bool on_its_way = co_await services.engine.wait_for_rest(sandbox.id, kLongest);
  if (on_its_way) {
    CO_TRY(sandbox, co_await services.store.find_sandbox(sandbox.tenant, sandbox.id));
  }
  for (const auto end = std::chrono::steady_clock::now() + kLongest; rests(sandbox.state) && std::chrono::steady_clock::now() < end;) {
    control::Operation operation;
    operation.id = new_id();
    operation.tenant = sandbox.tenant;
    operation.sandbox = sandbox.id;
    operation.kind = control::OperationKind::wake;
    operation.reason = "request";
    operation.created_ms = services.clock.wall_ms();
    auto accepted = co_await services.engine.change(std::move(operation), std::nullopt);
    if (!accepted && accepted.error().code != "sandbox_busy" && accepted.error().code != "sandbox_running")
      co_return fail(accepted.error());
    if (accepted) {
      CO_TRY(const control::Operation over, co_await services.engine.wait(sandbox.tenant, accepted->operation.id, kLongest));
      if (over.error) co_return fail(*over.error);
    } else {
      co_await sleep_for(std::chrono::milliseconds(50));  // it is still on its way to rest
    }
    CO_TRY(sandbox, co_await services.store.find_sandbox(sandbox.tenant, sandbox.id));
  }
  co_return sandbox;
}

}  // namespace space::api
