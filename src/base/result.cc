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

ErrorKind kind_of_errno(int value) {
  switch (value) {
    case ENOENT:
    case ENOTDIR: return ErrorKind::not_found;
    case EEXIST:
    case ENOTEMPTY:
    case EBUSY: return ErrorKind::conflict;
    case EACCES:
    case EPERM:
    case EROFS: return ErrorKind::permission_denied;
    case ENOSPC:
    case EDQUOT: return ErrorKind::insufficient_storage;
    case EFBIG: return ErrorKind::too_large;
    case EISDIR:
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG: return ErrorKind::invalid_argument;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN: return ErrorKind::resource_exhausted;
    case ETIMEDOUT: return ErrorKind::deadline_exceeded;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH: return ErrorKind::unavailable;
    default: return ErrorKind::internal;
  }
}

std::string_view code_of_errno(int value) {
  switch (value) {
    case ENOENT:
    case ENOTDIR: return "no_such_file";
    case EEXIST: return "already_exists";
    case ENOTEMPTY: return "not_empty";
    case EACCES:
    case EPERM: return "access_denied";
    case EROFS: return "read_only";
    case ENOSPC:
    case EDQUOT: return "no_space";
    case EFBIG: return "file_too_large";
    case EISDIR: return "is_a_directory";
    case ENAMETOOLONG: return "name_too_long";
    case ELOOP: return "too_many_links";
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return "connection_lost";
    default: return "system_error";
  }
}

}  // namespace

tl::unexpected<Error> fail_errno(int value, std::string_view doing) {
  return fail(kind_of_errno(value), code_of_errno(value), fmt::format("{}: {}", doing, std::strerror(value)));
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
