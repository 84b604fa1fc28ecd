// The events of one command as server-sent events to one reader. Ids are `epoch.sequence`, so a reader that comes back with the
// last one it has gets what follows, neither lost nor twice. A pause of the sandbox does not end the stream: it goes on after the
// resume. Whatever else cuts it off cuts the connection, so that nobody takes half for whole; only `exit` ends it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "http/server.h"
#include "node/sandbox.h"
#include "wire/agent_protocol.h"

namespace space::node {

struct EventPosition {
  std::uint64_t epoch = 0, sequence = 0;
};
std::optional<EventPosition> parse_position(std::string_view text);  // "1.42"; strict
std::string position_text(std::uint64_t epoch, std::uint64_t sequence);

// One frame as the text of its event; a payload that breaks the protocol is an error (agent_protocol_error).
Result<std::string> event_text(const wire::Frame& frame, std::uint64_t epoch);

// Answers `exchange`. `after`: the last sequence that the reader has, 0 for none.
Task<> attach(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::uint32_t process, std::uint64_t after);

// 409 outside_window with the window's ends as event ids beside the usual fields.
http::Response outside_window(std::uint64_t epoch, std::uint64_t first, std::uint64_t last);

}  // namespace space::node
