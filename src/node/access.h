// Who may call what on node.sock: the peer's account for everything, the tenant or an attach token for what is inside a sandbox.
#pragma once

#include <sys/types.h>

#include <memory>

#include "http/router.h"
#include "node/sandboxes.h"
#include "node/tokens.h"

namespace space::node {

// Only root and `api_uid` are listened to (SO_PEERCRED); others get permission_denied/peer_refused.
http::Router::Middleware peer_check(uid_t api_uid);

// The sandbox named by the path's {id}, when the header Space-Tenant names its tenant. Whatever does not fit is one and the same
// not_found/sandbox_not_found: an outsider learns nothing.
Result<std::shared_ptr<Sandbox>> tenant_sandbox(const Sandboxes& sandboxes, const http::Exchange& exchange);

// As above, or by a valid attach token of the session {session} (Authorization: Bearer at_…), which needs no tenant.
Result<std::shared_ptr<Sandbox>> session_sandbox(const Sandboxes& sandboxes, const TokenKey& tokens, const http::Exchange& exchange);

}  // namespace space::node
