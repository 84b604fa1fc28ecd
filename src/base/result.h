// Errors are values. Every function that can fail for a reason outside our own code returns Result<T>.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace space {

// The class of an error: what a caller can do about it. It alone decides the HTTP status (http_status).
enum class ErrorKind {
  invalid_argument,      // 400: the request is wrong; the same request will fail again
  unauthenticated,       // 401: no key, an unknown, expired or revoked one
  permission_denied,     // 403: a key without the scope; never used for what another tenant owns (that is not_found)
  not_found,             // 404
  conflict,              // 409: the state of the thing forbids it now
  gone,                  // 410: it existed and is over (an exited process, an expired token)
  too_large,             // 413
  unsupported,           // 422: understood, and this build or host cannot do it
  resource_exhausted,    // 429: a limit or quota
  internal,              // 500: our own mistake
  unavailable,           // 503: try again later
  deadline_exceeded,     // 504
  insufficient_storage,  // 507
  cancelled,             // 499
  corrupt,               // 500: stored bytes are not what they were
};

// What went wrong, for a program (`code`), for a person (`message`) and what to do now (`next`).
// `code` is lower_snake_case, stable for ever, the same in the API, the CLI and the docs.
struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string code;
  std::string message;
  std::string next;
};

template <class T = void>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string_view code, std::string message, std::string next = {}) {
  return tl::unexpected<Error>(Error{kind, std::string(code), std::move(message), std::move(next)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

// The failure of a system call: `doing` says what was attempted ("open /x"); ENOSPC, EACCES, ENOENT and their like map to
// kinds of their own. `errno_value` is an errno.
tl::unexpected<Error> fail_errno(int errno_value, std::string_view doing);

int http_status(ErrorKind kind);
std::string_view to_string(ErrorKind kind);  // "not_found" and so on
ErrorKind error_kind_from_http(int status);  // the reverse, for clients; unknown 4xx: invalid_argument, 5xx: internal
std::string describe(const Error& error);    // one line for logs: "code: message (next)"

}  // namespace space

// TRY(auto x, f()) declares x from the value or returns the error. TRY_VOID(f()) for Result<>. CO_ forms in coroutines.
#define SPACE_CONCAT_(a, b) a##b
#define SPACE_CONCAT(a, b) SPACE_CONCAT_(a, b)
#define SPACE_TRY_IMPL_(ret, tmp, decl, ...)              \
  auto tmp = __VA_ARGS__;                                 \
  if (!tmp) ret ::tl::unexpected(std::move(tmp).error()); \
  decl = std::move(*tmp)
#define SPACE_TRY_VOID_IMPL_(ret, tmp, ...)                 \
  do {                                                      \
    auto tmp = __VA_ARGS__;                                 \
    if (!tmp) ret ::tl::unexpected(std::move(tmp).error()); \
  } while (false)
#define TRY(decl, ...) SPACE_TRY_IMPL_(return, SPACE_CONCAT(try_, __LINE__), decl, __VA_ARGS__)
#define CO_TRY(decl, ...) SPACE_TRY_IMPL_(co_return, SPACE_CONCAT(try_, __LINE__), decl, __VA_ARGS__)
#define TRY_VOID(...) SPACE_TRY_VOID_IMPL_(return, SPACE_CONCAT(try_, __LINE__), __VA_ARGS__)
#define CO_TRY_VOID(...) SPACE_TRY_VOID_IMPL_(co_return, SPACE_CONCAT(try_, __LINE__), __VA_ARGS__)
