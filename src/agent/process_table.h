// All processes of this guest by their numbers, which start at 1 and are never given twice. Belongs to the loop.
#pragma once

#include <map>

#include "agent/cgroup.h"
#include "agent/process.h"

namespace space::agent {

class ProcessTable {
 public:
  static constexpr std::size_t kMostAlive = 1024;  // created or running
  static constexpr std::size_t kMostExited = 256;  // kept to be read
  static constexpr std::size_t kMostExitedBytes = 32 << 20;
  static constexpr auto kKeptFor = std::chrono::minutes(10);  // after the exit; and a process that is never started

  ProcessTable(asio::any_io_executor executor, Reaper& reaper);
  UserGroup& user_group() { return group_; }

  Result<std::shared_ptr<Process>> create(Command command);  // resource_exhausted/too_many_processes
  // gone/process_forgotten, not_found/process_not_found
  Result<std::shared_ptr<Process>> find(std::uint32_t number);
  std::vector<std::shared_ptr<Process>> list();

 private:
  void forget_old();  // looked at when the table is used: a guest that does nothing wakes up for nothing
  void resize_windows();
  std::vector<pid_t> groups() const;

  asio::any_io_executor executor_;
  Reaper& reaper_;
  UserGroup group_;
  WindowLimits limits_;
  std::map<std::uint32_t, std::shared_ptr<Process>> processes_;
  std::uint32_t next_ = 1;
};

}  // namespace space::agent
