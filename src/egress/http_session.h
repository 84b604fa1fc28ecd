// HTTP/1 between a guest and one upstream: every request is read strictly, checked, written anew and answered in turn.
#pragma once

#include <optional>
#include <string>

#include "egress/upstream.h"

namespace space::egress {

// Serves requests until either side ends. `tls`: the guest's TLS ends here and the upstream is spoken to in TLS. `upstream` may be
// connected already; `dead`: it could not be, which the first request is told.
asio::awaitable<void> serve_http1(Flow& flow, http::Stream& guest, Upstream& upstream, bool tls, std::optional<Error> dead);

// Says that nothing more comes, and reads what the guest was still sending, so that it sees the answer and not a reset.
asio::awaitable<void> close_gently(http::Stream& guest);

// An error of connect_upstream as an answer: 403, 502 or 504.
struct Refusal;
Refusal upstream_refusal(const Error& error);

}  // namespace space::egress
