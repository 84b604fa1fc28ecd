// Completion scripts, made from the grammar itself so that they cannot fall behind it.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace space::cli {

std::string completion_script(const CLI::App& app, const std::string& shell);  // "bash", "zsh", "fish"
int print_completion(const CLI::App& app, const std::string& shell);

}  // namespace space::cli
