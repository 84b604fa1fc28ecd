// HTTP/2 between a guest and one upstream, both by nghttp2: each stream's request is checked like one of HTTP/1 and sent on as a
// stream of the gateway's own connection; bodies flow within the windows of both sides, trailers pass (gRPC).
#pragma once

#include <optional>

#include "egress/upstream.h"

namespace space::egress {

// Serves until either side ends. `upstream` speaks HTTP/2 already, or `dead` says why it could not be reached: each request is told.
asio::awaitable<void> serve_http2(Flow& flow, http::Stream& guest, Upstream& upstream, std::optional<Error> dead);

}  // namespace space::egress
