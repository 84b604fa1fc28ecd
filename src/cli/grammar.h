// The grammar of the `space` command, in parts. Each function adds its subcommands to `app`; a subcommand's callback puts what
// has to be done into `chosen`, which runs after the whole line has been parsed.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace space::cli {

using Chosen = std::function<int()>;

void add_server_commands(CLI::App& app, Chosen& chosen);

}  // namespace space::cli
