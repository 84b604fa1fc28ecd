// `space run -t base python3 -c 1 --json`: where our own options end and the guest's command begins. CLI11 would take the
// guest's options for its own, so the line is cut before it sees it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace space::cli {

struct SplitLine {
  std::vector<std::string> ours;   // for the parser, without the program's name
  std::vector<std::string> guest;  // the command; empty when there is none
};

// Cuts lines of the subcommands `run` (behind its options), `exec` and `shell` (behind the sandbox). "--" cuts anywhere; one
// word right before it belongs to `run` as its template.
SplitLine split_guest_command(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace space::cli
