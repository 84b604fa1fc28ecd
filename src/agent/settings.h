// What a process gets without asking: the default user and folder, and its environment out of four layers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/accounts.h"

namespace space::agent {

using Environment = std::map<std::string, std::string>;

struct Settings {
  std::string default_user = "user";  // "root" when the guest has no such user
  std::string default_cwd;            // "": the user's home
  Environment template_env;
  Environment sandbox_env;    // by the last init
  bool authority = false;     // the gateway's certificate is in its place: programs are pointed there
  std::string sandbox_id;     // SPACE_SANDBOX_ID of every process
  std::string start_command;  // the template's; runs once a boot

  // The template's part, from its file (docs/agent-protocol.md, "In the template"); a file that is not there changes nothing.
  Result<> load_template(const std::string& path);
};

// Whether the names and values may stand in an environment: invalid_argument/invalid_environment.
Result<> check_environment(const Environment& env);

// "NAME=value", sorted: a command's own go before the sandbox's, those before the template's, those before HOME, USER, LOGNAME,
// SHELL, PATH, LANG, where certificates are, and, on a terminal, TERM.
std::vector<std::string> merge_environment(const Settings& settings, const User& user, const Environment& command, bool terminal);
std::string_view environment_value(const std::vector<std::string>& env, std::string_view name);  // "" when absent

// An absolute path from what a client gave: "~" and relative paths start at the user's home. invalid_argument/invalid_path when it
// is empty, longer than 4095 bytes or holds a NUL.
Result<std::string> absolute_path(std::string_view given, const User& user);

}  // namespace space::agent
