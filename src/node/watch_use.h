// Looks whether sandboxes are used though nobody asks them for anything: their processors work, or traffic passes the gateway.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/async.h"
#include "node/idle.h"
#include "node/sandboxes.h"

namespace space::node {

// The gateway's answer to GET /traffic, by sandbox.
Result<std::map<std::string, Traffic::Counters>> read_traffic(std::string_view text);

// Every two seconds, until `stopping` is true; for node's loop. `gateway` is the gateway's socket, "" where there is none. One that does
// not answer tells of no traffic: without it there is none.
asio::awaitable<void> watch_use(asio::any_io_executor executor, Sandboxes& sandboxes, std::filesystem::path gateway, const bool& stopping);

}  // namespace space::node
