#include "node/sessions.h"

#include <set>

#include "base/digest.h"
#include "base/random.h"

namespace space::node {
namespace {

constexpr std::size_t kMostSessions = 4096;  // the agent's own bound is far lower

tl::unexpected<Error> unknown_session() {
  return fail(ErrorKind::not_found, "session_not_found", "this sandbox has no such command session",
              "list its sessions; an ended command is kept for 10 minutes");
}

}  // namespace

std::string inherited_session(std::string_view sandbox, std::string_view session) {
  const Sha256 hash = sha256(std::string("inherited session\n").append(sandbox).append("\n").append(session));
  std::string name = "f";
  for (std::size_t i = 0; i < 23; ++i) name += "abcdefghijklmnopqrstuvwxyz012345"[static_cast<unsigned>(hash[i]) % 32];
  return name;
}

Result<> SessionTable::add(const std::string& session, std::uint32_t process) {
  if (sessions_.size() >= kMostSessions)
    return fail(ErrorKind::resource_exhausted, "too_many_sessions", "the sandbox has too many command sessions",
                "end some of its commands");
  Session& entry = sessions_[session];
  entry.process = process;
  highest_ = std::max<std::uint64_t>(highest_, process);
  entry.added = ++additions_;
  looked_ = true;  // the agent counts upwards
  return {};
}

void SessionTable::reconcile(const std::vector<wire::ProcessInfo>& listed, std::uint64_t mark) {
  looked_ = true;
  std::set<std::string, std::less<>> seen;
  for (const wire::ProcessInfo& info : listed) {
    highest_ = std::max<std::uint64_t>(highest_, info.process);
    if (!is_id(info.session) || !seen.insert(info.session).second) continue;
    if (sessions_.contains(info.session)) continue;  // what node assigned itself is not the agent's to change
    if (sessions_.size() < kMostSessions) sessions_[info.session].process = info.process;
  }
  std::erase_if(sessions_, [&](const auto& entry) { return entry.second.added <= mark && !seen.contains(entry.first); });
}

Result<std::uint32_t> SessionTable::process(std::string_view session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  return found->second.process;
}

}  // namespace space::node
