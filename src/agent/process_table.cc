#include "agent/process_table.h"

#include <algorithm>
#include <fmt/format.h>

namespace space::agent {
namespace {

constexpr std::size_t kWindowMemory = 64 << 20;  // of all living processes together
constexpr std::size_t kLargestTail = 1 << 20, kSmallestTail = 64 << 10;

bool alive(const Process& process) { return process.state() != ProcessState::exited; }

}  // namespace

ProcessTable::ProcessTable(asio::any_io_executor executor, Reaper& reaper)
    : executor_(executor), reaper_(reaper), group_(executor, [this] { return groups(); }) {}

Result<std::shared_ptr<Process>> ProcessTable::create(Command command) {
  forget_old();
  const auto living =
      static_cast<std::size_t>(std::count_if(processes_.begin(), processes_.end(), [](const auto& p) { return alive(*p.second); }));
  if (living >= kMostAlive)
    return fail(ErrorKind::resource_exhausted, "too_many_processes", fmt::format("{} processes are alive in this sandbox", living),
                "end some of them first");
  const std::uint32_t number = next_++;
  auto process =
      std::make_shared<Process>(executor_, reaper_, limits_, number, std::move(command), group_.descriptor(), [this] { resize_windows(); });
  processes_.emplace(number, process);
  resize_windows();
  return process;
}

Result<std::shared_ptr<Process>> ProcessTable::find(std::uint32_t number) {
  forget_old();
  if (const auto found = processes_.find(number); found != processes_.end()) return found->second;
  if (number > 0 && number < next_)
    return fail(ErrorKind::gone, "process_forgotten", fmt::format("process {} ended too long ago", number),
                "run it again; how one ended is kept for ten minutes");
  return fail(ErrorKind::not_found, "process_not_found", fmt::format("there is no process {}", number), "list those that there are");
}

std::vector<std::shared_ptr<Process>> ProcessTable::list() {
  forget_old();
  std::vector<std::shared_ptr<Process>> out;
  for (const auto& [number, process] : processes_) out.push_back(process);
  return out;
}

void ProcessTable::forget_old() {
  const auto now = std::chrono::steady_clock::now();
  // The order of the ends, the newest last.
  std::vector<Process*> exited;
  for (auto it = processes_.begin(); it != processes_.end();) {
    Process& process = *it->second;
    const bool stale = process.state() == ProcessState::created && now - process.created_at() > kKeptFor;
    const bool old = process.state() == ProcessState::exited && now - process.ended_at() > kKeptFor;
    if (process.state() == ProcessState::exited && !old) exited.push_back(&process);
    it = stale || old ? processes_.erase(it) : std::next(it);
  }
  std::sort(exited.begin(), exited.end(), [](const Process* a, const Process* b) { return a->ended_at() > b->ended_at(); });
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < exited.size(); ++i) {
    bytes += exited[i]->window().cost();
    if (i > 0 && (i >= kMostExited || bytes > kMostExitedBytes)) processes_.erase(exited[i]->number());
  }
}

void ProcessTable::resize_windows() {
  const auto living =
      static_cast<std::size_t>(std::count_if(processes_.begin(), processes_.end(), [](const auto& p) { return alive(*p.second); }));
  limits_.tail = std::clamp(kWindowMemory / std::max<std::size_t>(living, 1), kSmallestTail, kLargestTail);
}

std::vector<pid_t> ProcessTable::groups() const {
  std::vector<pid_t> out;
  for (const auto& [number, process] : processes_)
    if (alive(*process) && process->pid() > 0) out.push_back(process->pid());
  return out;
}

}  // namespace space::agent
