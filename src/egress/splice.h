// Bytes passed on, both ways, until both ends are done.
#pragma once

#include <functional>
#include <string>

#include "egress/flow.h"

namespace space::egress {

class Scrubber;

struct SpliceOptions {
  std::string first_up, first_down;  // read already: they go out first
  Scrubber* scrubber = nullptr;      // takes secrets out of what comes down
  // Looks at what the guest sends first. `hold`: more is needed before anything is passed on.
  enum class Look { hold, pass, refuse };
  std::function<Look(std::string_view bytes)> look;
};

// Returns when it is over; half-closed connections live on.
asio::awaitable<void> splice(Flow& flow, http::Stream& guest, http::Stream& upstream, SpliceOptions options = {});

}  // namespace space::egress
