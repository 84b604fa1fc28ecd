// Forwards one exchange to another role and its answer back, streaming both ways with constant memory.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "http/client.h"
#include "http/server.h"

namespace space::http {

struct ProxyOptions {
  std::string target;                     // the request target at the other side
  Headers set_headers;                    // added or replaced on the way in
  std::vector<std::string> drop_headers;  // beside the hop-by-hop ones (RFC 9110, 7.6.1), which always go
  std::string drop_prefix;  // not empty: and every header whose name begins so, in whatever case; what the roles tell each other
  std::vector<std::string> answer_headers;  // when there are some: only these of the answer go on
  // Asked about a short application/problem+json answer, whole: what to send in its place, or nothing. For other words for our own errors.
  std::function<std::optional<Response>(const Response&)> other_words;
  bool event_stream = false;  // no time limit between pieces of the answer
  bool upgrade = false;       // a WebSocket may follow (RFC 6455, section 4): bytes both ways, without a time limit
  bool slow_body = false;     // none between pieces of the request either: standard input
};

// Who really asked, for a server that may be anybody's: X-Forwarded-For and -Host of this exchange; what its client claims about that goes.
void say_who_asks(const Exchange& exchange, ProxyOptions& options);

Task<> forward(Exchange& exchange, Client& client, ProxyOptions options);

}  // namespace space::http
