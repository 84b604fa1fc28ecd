// Running a program and reading what it says line by line. Blocks.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace space::tmpl {

struct Command {
  std::vector<std::string> argv;                         // argv[0] is looked up in PATH and the folders for administrators; no shell
  std::vector<std::string> environment;                  // "NAME=value", before our own
  std::function<void(const std::string& line)> on_line;  // each line of standard error and output, cut to 1,000 bytes
  std::chrono::milliseconds time_limit{0};               // then it is killed: deadline_exceeded/template_script. 0: none
};

// A status other than 0 is unavailable/template_script with the last lines; a program that is not there too.
Result<> run_command(const Command& command);

}  // namespace space::tmpl
