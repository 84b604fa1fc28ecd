// The command sessions of one sandbox: which of the agent's processes each one is, and who may attach. The agent keeps the session
// id with the process, so that a restarted node finds them again; tokens do not survive that (clients renew them). For node's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/digest.h"
#include "base/result.h"
#include "wire/agent_client.h"

namespace space::node {

inline constexpr std::int64_t kAttachTokenLifeMs = 5 * 60 * 1000;

struct AttachToken {
  std::string token;  // the only copy: node keeps its SHA-256
  std::int64_t expires_ms = 0;
};

// The session of a process that a fork has from its parent: another one than there, the same after every restart of node.
std::string inherited_session(std::string_view sandbox, std::string_view session);

class SessionTable {
 public:
  explicit SessionTable(const Clock& clock) : clock_(clock) {}

  // Full: resource_exhausted/too_many_sessions; the caller reconciles with the agent's list and tries again.
  Result<> add(const std::string& session, std::uint32_t process);
  // Entries for what the agent lists; those it no longer lists are dropped, except what was added after `mark` was taken (before
  // asking for the list). What a hostile agent lists twice or under a malformed id is ignored.
  void reconcile(const std::vector<wire::ProcessInfo>& listed, std::uint64_t mark);
  std::uint64_t mark() const { return additions_; }
  Result<std::uint32_t> process(std::string_view session) const;  // unknown: not_found/session_not_found

  Result<AttachToken> issue(std::string_view session);  // at most 16 are valid at a time; the oldest goes
  // Unknown: unauthenticated/token_invalid. Known and late: gone/token_expired. Of another session: as unknown.
  Result<> check(std::string_view session, std::string_view token) const;
  std::size_t size() const { return sessions_.size(); }
  std::uint64_t highest() const { return highest_; }  // the largest number of a process that was ever seen here
  void clear() { sessions_.clear(); }                 // another life of the guest: all tokens are void

 private:
  struct Token {
    Sha256 hash;
    std::int64_t expires_ms;
  };
  struct Session {
    std::uint32_t process = 0;
    std::uint64_t added = 0;
    std::deque<Token> tokens;
  };
  const Clock& clock_;
  std::map<std::string, Session, std::less<>> sessions_;
  std::uint64_t additions_ = 0;
  std::uint64_t highest_ = 0;
};

}  // namespace space::node
