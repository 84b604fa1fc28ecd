// `space serve`: starts the roles as processes of their own, keeps them running, and ends them in order.
//
// One thread, blocking in one place (sigtimedwait). The supervisor reads nothing that a client, a guest or a VMM wrote. When it
// is killed its roles die with it (PR_SET_PDEATHSIG); the VMs stay for the next server to adopt.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sys/types.h>

#include "base/result.h"
#include "cli/server_settings.h"

namespace space::cli {

// The wait before a role is started again: 100 ms, doubled at each death up to 5 s; a life of 30 s makes it short again.
class Backoff {
 public:
  using Duration = std::chrono::milliseconds;
  Duration after_a_life_of(Duration life);

 private:
  Duration next_{100};
};

// One role as the supervisor sees it.
struct RoleProcess {
  Role role;
  pid_t pid = 0;  // 0: not running
  std::chrono::steady_clock::time_point started{};
  std::optional<std::chrono::steady_clock::time_point> start_again{};  // set while it waits
  Backoff backoff{};
  int failed_starts = 0;  // before the server was ready
};

class Supervisor {
 public:
  explicit Supervisor(ServerSettings settings);
  // Blocks until the server has stopped; the exit status of the process.
  int run();

 private:
  Result<> start(RoleProcess& process);
  Result<> reap();  // notes which roles died; before the server was ready, several in a row are an error
  Result<> start_due();
  void announce_when_ready();
  std::chrono::milliseconds time_to_next() const;
  void stop_all();  // api, node, egress, warden: those who take work first
  void end(RoleProcess& process, std::chrono::milliseconds grace);

  ServerSettings settings_;
  std::array<RoleProcess, 4> processes_;
  bool ready_ = false;
};

}  // namespace space::cli
