#include "cli/guest_command.h"

#include <CLI/CLI.hpp>

namespace space::cli {
namespace {

// Does this option, as written, take the next word as its value?
bool takes_next_word(const CLI::App& command, const CLI::App& app, const std::string& word) {
  const bool has_value = word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;  // "--x=1", "-x1"
  const std::string name = has_value && !word.starts_with("--") ? word.substr(0, 2) : word.substr(0, word.find('='));
  for (const CLI::App* place : {&command, &app})
    if (const CLI::Option* option = place->get_option_no_throw(name)) return !has_value && option->get_items_expected_max() > 0;
  return false;
}

}  // namespace

SplitLine split_guest_command(const CLI::App& app, const std::vector<std::string>& words) {
  SplitLine out;
  const CLI::App* command = nullptr;
  bool word_is_run = false;
  std::size_t places_left = 0;  // positional words of ours before the guest's command
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool option = word.size() > 1 && word.front() == '-';
    if (command && word == "--") {
      out.guest.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      return out;
    }
    // "run TEMPLATE -- COMMAND": the template may stand before the dashes, and only there.
    const bool template_name = word_is_run && !option && i + 1 < words.size() && words[i + 1] == "--";
    if (command && !option && !template_name && places_left-- == 0) {
      out.guest.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      return out;
    }
    out.ours.push_back(word);
    if (option) {
      if (takes_next_word(command ? *command : app, app, word) && i + 1 < words.size()) out.ours.push_back(words[++i]);
      continue;
    }
    if (command) continue;
    if (word == "run" || word == "exec" || word == "shell") command = app.get_subcommand(word);
    if (!command) {
      out.ours.insert(out.ours.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      return out;
    }
    word_is_run = word == "run";
    places_left = word_is_run ? 0 : 1;
  }
  return out;
}

}  // namespace space::cli
