// The guest's own cgroup v2 tree (Documentation/admin-guide/cgroup-v2.rst): `user` for everything that users run, which can be
// frozen as a whole, and `agent`. Without that tree (on a host, in tests) freezing is done by SIGSTOP to the groups that are known.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/fd.h"

namespace space::agent {

class UserGroup {
 public:
  // No tree: every process is the agent's neighbour. `groups` tells the process groups to stop.
  UserGroup(asio::any_io_executor executor, std::function<std::vector<pid_t>()> groups)
      : executor_(std::move(executor)), groups_(std::move(groups)) {}
  Result<> open(const std::string& folder);         // "/sys/fs/cgroup/user"
  int descriptor() const { return folder_.get(); }  // -1 without a tree

  // Returns when all of it stands still: unavailable/freeze_failed when that takes more than wire::kFreezeLimit. What does not stand still
  // is let go for a moment every half second. After an error a part may stand still until thaw(), which also ends a freeze under way.
  Task<> freeze();
  Result<> thaw();
  bool frozen() const { return frozen_; }

 private:
  asio::any_io_executor executor_;
  std::function<std::vector<pid_t>()> groups_;
  Fd folder_;
  bool frozen_ = false;
  std::uint64_t turn_ = 0;  // of the latest freeze or thaw
};

}  // namespace space::agent
