// The HTTP paths of the agent (docs/agent-protocol.md). Handlers only translate: requests into calls, results into answers.
// Another protocol, such as E2B's, gets routes of its own beside these and calls the same things.
#pragma once

#include "agent/agent.h"
#include "http/router.h"
#include "wire/agent_protocol.h"

namespace space::agent {

// Refuses peers other than the host's end of the wire, then adds all routes of protocol v1.
void add_routes(http::Router& router, Agent& agent);
// Parts of it.
void add_process_routes(http::Router& router, Agent& agent);
void add_file_routes(http::Router& router, Agent& agent);
void add_connect_routes(http::Router& router, Agent& agent);
void add_volume_routes(http::Router& router, Agent& agent);  // the content of a volume, and mounts of others

// A query's value as a whole number; absent: the default. invalid_argument/invalid_query.
Result<std::uint64_t> query_number(const http::Target& target, std::string_view name, std::uint64_t most, std::uint64_t absent);
Result<bool> query_flag(const http::Target& target, std::string_view name);  // "1" or "0"; absent: false
Task<json::object> read_json(http::Exchange& exchange, std::size_t limit = 1 << 20);
Task<> reply_json(http::Exchange& exchange, int status, json::object body);

}  // namespace space::agent
