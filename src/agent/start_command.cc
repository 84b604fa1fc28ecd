#include "agent/start_command.h"

#include "agent/agent.h"
#include "base/log.h"

namespace space::agent {
namespace {

Result<std::shared_ptr<Process>> prepare(Agent& agent) {
  Command command;
  command.session = "start";
  command.argv = {"/bin/bash", "-l", "-c", agent.settings.start_command};
  TRY(command.user, agent.find_user(""));
  command.identity = agent.accounts.current()->identity(command.user);
  command.cwd_optional = true;
  command.cwd = agent.settings.default_cwd.empty() ? command.user.home : agent.settings.default_cwd;
  command.env = merge_environment(agent.settings, command.user, {}, false);
  return agent.processes.create(std::move(command));
}

}  // namespace

asio::awaitable<void> run_start_command(Agent& agent) {
  const auto process = prepare(agent);
  if (!process) {
    log::warn("start_command.failed", {{"error", process.error()}});
    co_return;
  }
  const auto started = co_await (*process)->start();
  if (!started) log::warn("start_command.failed", {{"error", started.error()}});
  // Nobody reads its output: the window keeps the newest.
}

}  // namespace space::agent
