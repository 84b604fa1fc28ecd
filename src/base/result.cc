#include "base/result.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <iterator>

namespace space {
namespace {

struct KindRow {
  ErrorKind kind;
  int status;
  std::string_view name;
};
constexpr KindRow kKinds[] = {
    {ErrorKind::invalid_argument, 400, "invalid_argument"},
    {ErrorKind::unauthenticated, 401, "unauthenticated"},
    {ErrorKind::permission_denied, 403, "permission_denied"},
    {ErrorKind::not_found, 404, "not_found"},
    {ErrorKind::conflict, 409, "conflict"},
    {ErrorKind::gone, 410, "gone"},
    {ErrorKind::too_large, 413, "too_large"},
    {ErrorKind::unsupported, 422, "unsupported"},
    {ErrorKind::resource_exhausted, 429, "resource_exhausted"},
    {ErrorKind::internal, 500, "internal"},
    {ErrorKind::unavailable, 503, "unavailable"},
    {ErrorKind::deadline_exceeded, 504, "deadline_exceeded"},
    {ErrorKind::insufficient_storage, 507, "insufficient_storage"},
    {ErrorKind::cancelled, 499, "cancelled"},
    {ErrorKind::corrupt, 500, "corrupt"},
};

// What the system refuses, in our words; whoever knows more about the place writes its own error.
struct ErrnoRow {
  int value;
  ErrorKind kind;
  std::string_view code;
  std::string_view next;
};
constexpr std::string_view kCheckPath = "check the path", kAnotherUser = "use a user who may, or change the rights of the file";
constexpr std::string_view kMakeRoom = "delete something, or take a larger disk", kLater = "try again in a moment";
constexpr ErrnoRow kErrnos[] = {
    {ENOENT, ErrorKind::not_found, "no_such_file", kCheckPath},
    {ENOTDIR, ErrorKind::not_found, "no_such_file", kCheckPath},
    {EEXIST, ErrorKind::conflict, "already_exists", "choose another name, or remove what is there"},
    {ENOTEMPTY, ErrorKind::conflict, "not_empty", "remove what is in it first, or ask for all of it"},
    {EBUSY, ErrorKind::conflict, "system_error", kLater},
    {EACCES, ErrorKind::permission_denied, "access_denied", kAnotherUser},
    {EPERM, ErrorKind::permission_denied, "access_denied", kAnotherUser},
    {EROFS, ErrorKind::permission_denied, "read_only", "choose a place that can be written"},
    {ENOSPC, ErrorKind::insufficient_storage, "no_space", kMakeRoom},
    {EDQUOT, ErrorKind::insufficient_storage, "no_space", kMakeRoom},
    {EFBIG, ErrorKind::too_large, "file_too_large", "split it"},
    {EISDIR, ErrorKind::invalid_argument, "is_a_directory", "name a file"},
    {EINVAL, ErrorKind::invalid_argument, "system_error", "check what was asked for"},
    {ELOOP, ErrorKind::invalid_argument, "too_many_links", kCheckPath},
    {ENAMETOOLONG, ErrorKind::invalid_argument, "name_too_long", "choose a shorter name"},
    {EMFILE, ErrorKind::resource_exhausted, "system_error", kLater},
    {ENFILE, ErrorKind::resource_exhausted, "system_error", kLater},
    {ENOMEM, ErrorKind::resource_exhausted, "system_error", kLater},
    {EAGAIN, ErrorKind::resource_exhausted, "system_error", kLater},
    {ETIMEDOUT, ErrorKind::deadline_exceeded, "system_error", kLater},
    {ECONNREFUSED, ErrorKind::unavailable, "connection_lost", kLater},
    {ECONNRESET, ErrorKind::unavailable, "connection_lost", kLater},
    {EPIPE, ErrorKind::unavailable, "connection_lost", kLater},
    {EHOSTUNREACH, ErrorKind::unavailable, "system_error", kLater},
    {ENETUNREACH, ErrorKind::unavailable, "system_error", kLater},
};

}  // namespace

tl::unexpected<Error> fail_errno(int value, std::string_view doing) {
  std::string message = fmt::format("{}: {}", doing, std::strerror(value));
  for (const ErrnoRow& row : kErrnos)
    if (row.value == value) return fail(row.kind, row.code, std::move(message), std::string(row.next));
  return fail(ErrorKind::internal, "system_error", std::move(message), "see the server's log");
}

int http_status(ErrorKind kind) {
  for (const auto& row : kKinds)
    if (row.kind == kind) return row.status;
  return 500;
}

std::string_view to_string(ErrorKind kind) {
  for (const auto& row : kKinds)
    if (row.kind == kind) return row.name;
  return "internal";
}

ErrorKind error_kind_from_http(int status) {
  for (const auto& row : kKinds)
    if (row.status == status) return row.kind;
  return status >= 500 ? ErrorKind::internal : ErrorKind::invalid_argument;
}

std::string describe(const Error& error) {
  std::string line = fmt::format("{}: {}", error.code, error.message);
  if (!error.next.empty()) fmt::format_to(std::back_inserter(line), " ({})", error.next);
  return line;
}

}  // namespace space
