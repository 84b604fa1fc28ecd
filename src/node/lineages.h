// The end of a lineage: when no sandbox and no checkpoint of it is left on this machine, the key of its certificate authority goes.
#pragma once

#include "base/async.h"
#include "node/gateway.h"
#include "node/sandboxes.h"

namespace space::node {

// Looks every two seconds whether something went since the last time, until the loop ends. Spawned once; all of it outlives this.
asio::awaitable<void> watch_lineages(Gateway& gateway, const Sandboxes& sandboxes, Vault& vault, BlockingPool& disk);

}  // namespace space::node
