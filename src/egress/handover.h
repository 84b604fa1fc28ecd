// Serves <run>/egress/fds.sock: descriptors from node (wire/egress_handover.h).
#pragma once

#include "egress/parent.h"

namespace space::egress {

// Takes connections of root and of `node_uid`, several at a time, until the loop ends.
asio::awaitable<void> serve_handover(asio::any_io_executor executor, Fd listener, uid_t node_uid, Parent& parent);

}  // namespace space::egress
