// Bytes passed on unread, both ways, until both ends are done.
#pragma once

#include <string>

#include "egress/flow.h"

namespace space::egress {

// `first` was read from the guest already and goes out first. Returns when it is over; half-closed connections live on.
asio::awaitable<void> splice(Flow& flow, http::Stream& guest, http::Stream& upstream, std::string first = {});

}  // namespace space::egress
