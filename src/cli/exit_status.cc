#include "cli/exit_status.h"

namespace space::cli {

int exit_status_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::too_large:
    case ErrorKind::unsupported:
      return kBadRequest;
    case ErrorKind::not_found:
    case ErrorKind::gone:
      return kNotThere;
    case ErrorKind::unauthenticated:
    case ErrorKind::permission_denied:
      return kNotAllowed;
    case ErrorKind::conflict:
    case ErrorKind::resource_exhausted:
    case ErrorKind::deadline_exceeded:
    case ErrorKind::insufficient_storage:
      return kTryAgain;
    case ErrorKind::unavailable:
      return kUnreachable;
    case ErrorKind::cancelled:
      return kInterrupted;
    case ErrorKind::internal:
    case ErrorKind::corrupt:
      return kInternal;
  }
  return kInternal;
}

int exit_status_of_command(const Error& error) {
  if (error.kind == ErrorKind::cancelled) return kInterrupted;
  if (error.code == "command_not_found") return kNoSuchProgram;
  if (error.code == "not_executable") return kNotExecutable;
  return kOwnError;
}

}  // namespace space::cli
