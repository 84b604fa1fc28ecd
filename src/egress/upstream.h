// The one connection to the outside that belongs to one connection of a guest; never shared with another, nor pooled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "egress/flow.h"
#include "http/in_buffer.h"
#include "http/stream.h"

namespace space::egress {

struct Upstream {
  std::unique_ptr<http::Stream> stream;  // nullptr: not connected
  std::unique_ptr<Watched> watched;
  http::InBuffer in;
  std::string protocol;  // by ALPN: "h2", "http/1.1" or ""
  bool used = false;     // a request went over it already

  void drop();
  bool stale();  // closed or talked unasked while nothing was awaited
};

// Resolves, judges, dials and, with `tls`, verifies. Errors as Dialer::dial, tls_failed and upstream_timeout.
Task<> connect_upstream(Flow& flow, Upstream& upstream, bool tls, std::vector<std::string> protocols);

}  // namespace space::egress
