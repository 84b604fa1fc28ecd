// Everything that one agent holds, made once by main.cc. Belongs to the loop; `pool` is for what blocks on the guest's disk.
#pragma once

#include <memory>
#include <string>

#include "agent/accounts.h"
#include "agent/guest.h"
#include "agent/impersonation.h"
#include "agent/loads.h"
#include "agent/process_table.h"
#include "agent/reaper.h"
#include "agent/settings.h"
#include "agent/volume.h"
#include "agent/volume_mounts.h"
#include "agent/volume_service.h"
#include "base/async.h"

namespace space::agent {

struct Agent {
  explicit Agent(asio::any_io_executor loop, std::unique_ptr<Guest> machine)
      : executor(loop), reaper(loop), processes(loop, reaper), guest(std::move(machine)), loads(*this) {}

  asio::any_io_executor executor;
  Reaper reaper;
  AccountFiles accounts;
  Settings settings;
  ProcessTable processes;
  std::unique_ptr<Guest> guest;
  Loads loads;
  std::string boot_id;
  VolumeMounts mounts;                              // volumes that this guest uses
  VolumeService volume{kVolumeFolder, kVolumeKey};  // the one that it is
  bool allow_any_peer = false;
  BlockingPool pool{4};

  // "" is the default user.
  Result<User> find_user(std::string_view name);
};

// Runs `work` (a callable without arguments that gives a Result) on the pool with that identity.
template <class F>
asio::awaitable<std::invoke_result_t<F>> as_user(Agent& agent, Identity identity, F work) {
  auto job = [identity = std::move(identity), work = std::move(work)]() mutable -> std::invoke_result_t<F> {
    TRY(const Impersonation user, Impersonation::enter(identity));
    return work();
  };
  co_return co_await agent.pool.run(std::move(job));
}

}  // namespace space::agent
