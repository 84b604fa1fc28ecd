// The parent's HTTP API on <run>/egress/egress.sock (docs/egress.md, "HTTP").
#pragma once

#include <sys/types.h>

#include <vector>

#include "egress/parent.h"
#include "http/router.h"

namespace space::egress {

http::Router::Middleware peer_check(std::vector<uid_t> uids);  // beside root; others: permission_denied/peer_refused
void add_sandbox_routes(http::Router& router, Parent& parent);
void add_secret_routes(http::Router& router, Parent& parent);  // credentials and CAs
void add_audit_routes(http::Router& router, Parent& parent);

Task<> reply_json(http::Exchange& exchange, int status, json::value body);
Task<> no_content(http::Exchange& exchange);
Task<json::object> read_object(http::Exchange& exchange, std::size_t limit);

}  // namespace space::egress
