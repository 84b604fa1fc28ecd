// The counters of a namespace's rules.
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "wire/refusals.h"

namespace space::net {

// As they stand now; nothing is reset. Some hundred microseconds, on a thread of its own; from any thread. Source of the messages:
// linux/netfilter/nf_tables.h (NFT_MSG_GETOBJ).
Result<wire::Refusals> read_refusals(const Fd& net_namespace);

}  // namespace space::net
