// How a change of a sandbox is answered: at once with its operation, or after it was waited for (Prefer: wait).
#pragma once

#include <chrono>

#include "api/services.h"
#include "http/proxy.h"
#include "http/server.h"

namespace space::api {

// `accepted` at once, `done` when it was waited for and succeeded.
struct Statuses {
  int accepted = 202;
  int done = 200;
};

Task<> answer_change(Services& services, http::Exchange& exchange, control::Accepted accepted, Statuses statuses,
                     std::chrono::seconds wait);

// Of this request's tenant, begun now.
control::Operation new_operation(const Services& services, const http::Exchange& exchange, control::OperationKind kind,
                                 std::string sandbox);

// A change that needs nothing but the sandbox's id; the request has an empty body.
Task<> change_sandbox(Services& services, http::Exchange& exchange, control::OperationKind kind);

// Carries the request on to node, under the tenant's name, or under its attach token when that is all it has. What is meant for this
// role, and what only roles may say, stays here.
Task<> carry_to_node(Services& services, http::Exchange& exchange, http::ProxyOptions options);

// What node keeps itself is asked there: the request goes on to `target`.
Task<> answer_from_node(Services& services, http::Exchange& exchange, std::string target);

}  // namespace space::api
