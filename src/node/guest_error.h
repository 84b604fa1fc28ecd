// Errors that come from inside a VM, made fit for others: whoever runs there chooses their words.
#pragma once

#include <string_view>

#include "base/result.h"

namespace space::node {

// The agent's own refusals (no such file, no space, process forgotten, …) pass with their kind, a checked code and a bounded,
// printable message. Everything else, silence and garbage above all, becomes agent_not_answering. `doing`: "start the command".
Error guest_error(const Error& error, std::string_view doing);

// For deadlines on the agent's answers.
Error agent_not_answering(std::string_view doing, std::string_view why);

// The VM is not there any more.
Error vm_gone();

// Users' processes that did not stand still: of what is saved so nothing may go on twice, since two of it would draw the same random
// numbers. `next`: what to do.
Error guest_not_frozen(std::string_view next);

// The client of a stream has closed its connection; ends the handler, tells nobody.
Error reader_gone();

// `text` as valid UTF-8 without control characters, at most `limit` bytes.
std::string printable(std::string_view text, std::size_t limit);

}  // namespace space::node
