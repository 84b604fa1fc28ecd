// One thread under a user's identity for the length of a scope, so that the kernel checks file permissions against that user and
// no check of ours can be raced. Works on the raw system calls, which change the calling thread alone (credentials(7); the C
// library's wrappers change all threads). With an effective uid other than 0 the thread has no effective capability.
#pragma once

#include "agent/accounts.h"

namespace space::agent {

class Impersonation {
 public:
  // Refused (permission_denied) when the agent does not run as root and the identity is another one.
  static Result<Impersonation> enter(const Identity& identity);
  Impersonation(Impersonation&& other) noexcept : active_(std::exchange(other.active_, false)) {}
  Impersonation& operator=(Impersonation&&) = delete;
  ~Impersonation();

 private:
  explicit Impersonation(bool active) : active_(active) {}
  bool active_;
};

}  // namespace space::agent
