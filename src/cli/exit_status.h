// What `space` leaves behind for scripts. docs/cli.md lists the same numbers.
//
// `run`, `exec` and `shell` hand on the command's own status, so everything of SPACE's own is one number there, 125, and a command
// that could not be started is 126 or 127, as env(1) and the shells say it. The other commands use sysexits.h, which no shell
// gives a meaning of its own.
#pragma once

#include "base/result.h"

namespace space::cli {

inline constexpr int kInPart = 1;           // cp: some of a folder could not be copied; the rest was
inline constexpr int kTimedOut = 124;       // the command's time limit ended it, as timeout(1) says it
inline constexpr int kOwnError = 125;       // run, exec, shell: SPACE failed, not the command
inline constexpr int kNotExecutable = 126;  // run, exec, shell: the program is there and may not be run
inline constexpr int kNoSuchProgram = 127;  // run, exec, shell: no such program
inline constexpr int kSignalBase = 128;     // run, exec, shell: 128 + the signal that ended the command
inline constexpr int kInterrupted = 130;    // Ctrl-C
inline constexpr int kUsage = 64;           // unknown command or option
inline constexpr int kBadRequest = 65;      // the server refused the values
inline constexpr int kNotThere = 66;        // no such sandbox, file, operation; or it is over
inline constexpr int kUnreachable = 69;     // no server, or it is not ready
inline constexpr int kInternal = 70;        // a fault of SPACE
inline constexpr int kTryAgain = 75;        // a conflict, a limit or a time limit: the same may work later
inline constexpr int kNotAllowed = 77;      // no key, a wrong key, or a key without the right
inline constexpr int kCannotServe = 78;     // `serve`: this machine lacks something, or a second server

using StatusOfError = int (*)(const Error&);
int exit_status_of(const Error& error);
int exit_status_of_command(const Error& error);  // of run, exec and shell

}  // namespace space::cli
