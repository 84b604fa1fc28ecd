#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>

namespace space::cli {
namespace {

struct Entry {
  std::string path;  // "", "ls", "template ls"
  std::string words;
  std::vector<const CLI::App*> commands;
  std::vector<const CLI::Option*> options;
  bool takes_sandbox = false;
};

void collect(const CLI::App& app, const std::string& path, std::vector<Entry>& out) {
  Entry entry{path, "", {}, {}, false};
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* s) { return s->get_parent()->get_parent() != nullptr || !s->get_group().empty(); })) {
    entry.commands.push_back(sub);
    entry.words += (entry.words.empty() ? "" : " ") + sub->get_name();
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name(true) == "sandbox" || option->get_name() == "sandbox") entry.takes_sandbox = true;
    if (option->get_lnames().empty() || option->get_group().empty()) continue;  // no group: hidden
    entry.options.push_back(option);
    entry.words += (entry.words.empty() ? "--" : " --") + option->get_lnames().front();
  }
  out.push_back(entry);
  for (const CLI::App* sub : entry.commands) collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
}

// One function for both: zsh runs it through bashcompinit. The words before the cursor that are a command's path lead to its words.
std::string bash_script(const std::vector<Entry>& entries) {
  std::string cases, paths = "|";
  for (const Entry& e : entries) {
    paths += e.path + "|";
    cases += fmt::format("    \"{}\") words=\"{}\"{} ;;\n", e.path, e.words,
                         e.takes_sandbox ? "; words=\"$words $(space ls -q 2>/dev/null)\"" : "");
  }
  return fmt::format(R"(_space() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" paths="{paths}" path="" words="" next i
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="${{path:+$path }}${{COMP_WORDS[i]}}"
    case "$paths" in *"|$next|"*) path="$next" ;; esac
  done
  case "$path" in
{cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  case "$path" in cp) COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o default -F _space space
)",
                     fmt::arg("paths", paths), fmt::arg("cases", cases));
}

std::string fish_script(const std::vector<Entry>& entries) {
  const auto quoted = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return "'" + text + "'";
  };
  std::string out = "complete -c space -f\n";
  for (const Entry& e : entries) {
    std::string condition = e.path.empty() ? "__fish_use_subcommand" : "";
    for (const std::string& word : CLI::detail::split(e.path, ' '))
      if (!word.empty()) condition += (condition.empty() ? "" : "; and ") + std::string("__fish_seen_subcommand_from ") + word;
    for (const CLI::App* sub : e.commands)
      out += fmt::format("complete -c space -n {} -a {} -d {}\n", quoted(condition), sub->get_name(), quoted(sub->get_description()));
    for (const CLI::Option* option : e.options)
      out += fmt::format("complete -c space -n {} -l {} -d {}\n", quoted(condition), option->get_lnames().front(),
                         quoted(option->get_description()));
    if (e.takes_sandbox) out += fmt::format("complete -c space -n {} -a '(space ls -q 2>/dev/null)'\n", quoted(condition));
    if (e.path == "cp") out += fmt::format("complete -c space -n {} -F\n", quoted(condition));
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<Entry> entries;
  collect(app, "", entries);
  if (shell == "fish") return fish_script(entries);
  if (shell == "zsh") return "#compdef space\nautoload -U +X bashcompinit && bashcompinit\n" + bash_script(entries);
  return bash_script(entries);
}

int print_completion(const CLI::App& app, const std::string& shell) {
  const std::string script = completion_script(app, shell);
  std::fwrite(script.data(), 1, script.size(), stdout);
  return 0;
}

}  // namespace space::cli
