// One open file as an answer: whole or one range of it, with what the page cache holds read at once and the rest on the pool.
#pragma once

#include "agent/agent.h"
#include "agent/content.h"
#include "http/server.h"

namespace space::agent {

// GET and HEAD, with Range and If-Range. `headers`: the answer's own, beside those for ranges. A file that shrinks meanwhile is
// conflict/file_changed, which cuts the connection: nobody takes the part for the whole. A file that is shorter than it says from the
// start, as those of /sys are, is sent as it is, whole and without a tag.
Task<> send_file(Agent& agent, http::Exchange& exchange, const OpenedFile& opened, http::Headers headers);

}  // namespace space::agent
