#include "node/sessions.h"

#include <set>

#include "base/encoding.h"
#include "base/random.h"

namespace space::node {
namespace {

constexpr std::size_t kMostSessions = 4096;  // the agent's own bound is far lower
constexpr std::size_t kMostTokens = 16;
constexpr std::int64_t kRememberExpiredMs = 60 * 60 * 1000;

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
    return fail(ErrorKind::resource_exhausted, "too_many_sessions", "the sandbox has too many command sessions", "end some of its commands");
  Session& entry = sessions_[session];
  entry.process = process;
  highest_ = std::max<std::uint64_t>(highest_, process);
  entry.added = ++additions_;
  return {};
}

void SessionTable::reconcile(const std::vector<wire::ProcessInfo>& listed, std::uint64_t mark) {
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

Result<AttachToken> SessionTable::issue(std::string_view session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  auto& tokens = found->second.tokens;
  if (tokens.size() >= kMostTokens) tokens.pop_front();
  AttachToken made{new_token("at_"), clock_.wall_ms() + kAttachTokenLifeMs};
  tokens.push_back({sha256(std::string_view(made.token)), made.expires_ms});
  return made;
}

Result<> SessionTable::check(std::string_view session, std::string_view token) const {
  const auto invalid = fail(ErrorKind::unauthenticated, "token_invalid", "this is no attach token of this command session",
                            "ask for a new one: POST …/commands/{session}/token");
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return invalid;
  const Sha256 hash = sha256(token);
  for (const Token& known : found->second.tokens) {
    if (!equal_constant_time(as_text(known.hash), as_text(hash))) continue;
    const std::int64_t late = clock_.wall_ms() - known.expires_ms;
    if (late < 0) return {};
    if (late < kRememberExpiredMs)
      return fail(ErrorKind::gone, "token_expired", "the attach token has expired", "ask for a new one: POST …/commands/{session}/token");
    break;
  }
  return invalid;
}

}  // namespace space::node
