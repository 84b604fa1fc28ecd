// Starts one program: own session and process group, own cgroup, a user's rights, three descriptors, nothing else of the agent.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/accounts.h"
#include "base/fd.h"

namespace space::agent {

struct SpawnPlan {
  std::vector<std::string> candidates;  // paths tried one after another, as execvp(3) does
  std::vector<std::string> argv;        // argv[0] is only a name
  std::vector<std::string> env;         // "NAME=value"
  std::string cwd;
  bool cwd_optional = false;  // "/" when the folder is not there or not accessible
  Identity identity;
  int standard[3] = {-1, -1, -1};  // stdin, stdout, stderr; borrowed
  bool terminal = false;           // standard[0] becomes the controlling terminal
  int cgroup = -1;                 // a cgroup v2 folder to be born in (clone3(2), CLONE_INTO_CGROUP); -1: the agent's own. Borrowed
};

struct Spawned {
  pid_t pid = -1;
  Fd status;  // to be read: at its end without data the program runs; else it holds a StartFailure
};

// What the child writes before it gives up.
struct StartFailure {
  enum Stage : int { setup = 1, identity = 2, directory = 3, program = 4 } stage;
  int error;  // errno
};

Result<Spawned> spawn_program(const SpawnPlan& plan);

// The error that a caller sees. `program` and `cwd` name what was attempted.
Error start_error(const StartFailure& failure, const std::string& program, const std::string& cwd);

// The paths at which a program may be: itself when it has a slash, else one for each folder of `path` (a PATH value).
std::vector<std::string> program_candidates(const std::string& program, std::string_view path);

}  // namespace space::agent
