#include "agent/settings.h"

#include <fmt/format.h>

#include "agent/authority.h"
#include "base/file.h"
#include "base/json.h"

namespace space::agent {
namespace {

constexpr std::size_t kMostVariables = 4096;
constexpr std::size_t kLongestVariable = 128 << 10;  // the kernel's MAX_ARG_STRLEN
constexpr std::size_t kLongestPath = 4095;
constexpr std::size_t kLongestCommand = 16 << 10;

// What `pip install` and `npm i -g` put into the home comes first.
std::string usual_path(const User& user) {
  return fmt::format("{0}/.local/bin:{0}/.npm-global/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                     user.home == "/" ? "" : user.home);
}

}  // namespace

Result<> Settings::load_template(const std::string& path) {
  auto text = read_file(path, 1 << 20);
  if (!text) {
    if (text.error().kind == ErrorKind::not_found) return {};
    return tl::unexpected(std::move(text).error());
  }
  TRY(const json::object object, parse_json_object(*text));
  JsonReader r(object);
  r.ignore_unknown();
  std::string user = r.text("user", 0, 256, "");
  std::string cwd = r.text("workdir", 0, kLongestPath, "");
  Environment env = r.text_map("env", kMostVariables, kLongestVariable);
  std::string start = r.text("start", 0, kLongestCommand, "");
  TRY_VOID(r.done());
  TRY_VOID(check_environment(env));
  if (!user.empty()) default_user = std::move(user);
  default_cwd = std::move(cwd);
  template_env = std::move(env);
  start_command = std::move(start);
  return {};
}

Result<> check_environment(const Environment& env) {
  for (const auto& [name, value] : env)
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos || name.size() + value.size() + 2 > kLongestVariable)
      return fail(ErrorKind::invalid_argument, "invalid_environment",
                  fmt::format("the variable \"{}\" cannot stand in an environment", name.substr(0, 64)),
                  "a name is not empty and has no '=', and neither name nor value has a NUL or is over 128 KiB");
  return {};
}

std::vector<std::string> merge_environment(const Settings& settings, const User& user, const Environment& command, bool terminal) {
  Environment merged = command;
  merged.insert(settings.sandbox_env.begin(), settings.sandbox_env.end());
  merged.insert(settings.template_env.begin(), settings.template_env.end());
  if (!settings.sandbox_id.empty()) merged.emplace("SPACE_SANDBOX_ID", settings.sandbox_id);
  merged.emplace("HOME", user.home);
  merged.emplace("USER", user.name);
  merged.emplace("LOGNAME", user.name);
  merged.emplace("SHELL", user.shell);
  merged.emplace("PATH", usual_path(user));
  merged.emplace("LANG", "C.UTF-8");
  if (settings.authority) {
    for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"})
      merged.emplace(name, kAuthorityBundle);
    merged.emplace("NODE_EXTRA_CA_CERTS", kAuthorityFile);  // Node adds it to its own
  }
  if (terminal) merged.emplace("TERM", "xterm-256color");
  std::vector<std::string> out;
  out.reserve(merged.size());
  for (const auto& [name, value] : merged) {
    std::string& entry = out.emplace_back();
    entry.reserve(name.size() + 1 + value.size());
    entry.append(name).append("=").append(value);
  }
  return out;
}

std::string_view environment_value(const std::vector<std::string>& env, std::string_view name) {
  for (const std::string& entry : env)
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name))
      return std::string_view(entry).substr(name.size() + 1);
  return {};
}

Result<std::string> absolute_path(std::string_view given, const User& user) {
  std::string path;
  if (given.starts_with('/'))
    path = given;
  else if (given == "~" || given.starts_with("~/"))
    path = user.home + std::string(given.substr(1));
  else
    path = fmt::format("{}/{}", user.home, given);
  if (given.empty() || path.size() > kLongestPath || path.find('\0') != std::string::npos)
    return fail(ErrorKind::invalid_argument, "invalid_path", "a path must have 1 to 4095 bytes and no NUL", "check the path");
  return path;
}

}  // namespace space::agent
