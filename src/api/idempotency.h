// Idempotency-Key: the same key with the same request gives the stored answer for a day; with another request it is refused.
#pragma once

#include <optional>
#include <string>

#include "api/observed.h"
#include "api/routes.h"

namespace space::api {

// The header's value. Absent: nothing. Not 1 to 255 printable characters, or given twice: invalid_header.
Result<std::optional<std::string>> idempotency_key(const http::Exchange& exchange);

// Of method, target and body: what "the same request" means.
std::string fingerprint(const http::Exchange& exchange, std::string_view body);

// For Repeat::recorded: what to hand to the store, nothing without the header. `status` is that of the answer to keep; the sandbox
// stands in it unless `with_sandbox` is false.
Result<std::optional<control::Idempotency>> recorded(const http::Exchange& exchange, std::string_view body, int status);

// For Repeat::kept, secret and streamed: runs the handler, or answers from what is kept.
Task<> answer_once(Services& services, Observed& exchange, const Route& route);

// A kept answer as it goes out again.
http::Response replayed(int status, std::string body);

}  // namespace space::api
