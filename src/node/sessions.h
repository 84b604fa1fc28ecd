// The command sessions of one sandbox: which of the agent's processes each one is. The agent keeps the session id with the process, so
// that a restarted node finds them again; who may attach is in the tokens (tokens.h). For node's loop.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/agent_client.h"

namespace space::node {

// The session of a process that a fork has from its parent: another one than there, the same after every restart of node.
std::string inherited_session(std::string_view sandbox, std::string_view session);

class SessionTable {
 public:
  // Full: resource_exhausted/too_many_sessions; the caller reconciles with the agent's list and tries again.
  Result<> add(const std::string& session, std::uint32_t process);
  // Entries for what the agent lists; those it no longer lists are dropped, except what was added after `mark` was taken (before
  // asking for the list). What a hostile agent lists twice or under a malformed id is ignored.
  void reconcile(const std::vector<wire::ProcessInfo>& listed, std::uint64_t mark);
  std::uint64_t mark() const { return additions_; }
  Result<std::uint32_t> process(std::string_view session) const;  // unknown: not_found/session_not_found
  std::size_t size() const { return sessions_.size(); }
  std::uint64_t highest() const { return highest_; }  // the largest number of a process that was ever seen here
  // Whether the agent can have given no higher number than that: not before the first look after a restart of node, and not where
  // processes are started past this table.
  bool knows_highest() const { return looked_ && !others_; }
  void others_start() { others_ = true; }
  void clear() {  // another life of the guest
    sessions_.clear();
    looked_ = others_ = false;
  }

 private:
  struct Session {
    std::uint32_t process = 0;
    std::uint64_t added = 0;
  };
  std::map<std::string, Session, std::less<>> sessions_;
  std::uint64_t additions_ = 0;
  std::uint64_t highest_ = 0;
  bool looked_ = false, others_ = false;
};

}  // namespace space::node
