// E2B's in-sandbox protocol ("envd") on the agent's own port, beside the native one: Connect services for processes and the
// filesystem, /files, /health, /metrics, /envs. node checks tokens and signatures before anything arrives here, and only the host's
// end of the network may ask. Files are handled with root's rights, as E2B's clients expect: a user decides about paths and about
// who owns what is made. Belongs to the loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/agent.h"
#include "agent/figures.h"
#include "base/json.h"
#include "http/router.h"

namespace space::agent {

inline tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorKind::invalid_argument, "invalid_argument", std::move(message));
}

class PolledWatcher;  // envd_watch.cc

struct Envd {
  static constexpr std::size_t kMostWatchers = 256;

  explicit Envd(Agent& a) : agent(a) {}
  Agent& agent;

  struct Started {  // what a client asked for, which the process itself does not keep
    std::weak_ptr<Process> process;
    json::object config;
    std::optional<std::string> tag;
  };
  std::map<std::uint32_t, Started> started;  // by the process's number
  std::map<std::string, std::shared_ptr<PolledWatcher>> watchers;

  std::optional<CpuMark> cpu;  // at the last question for metrics
};

// All of it; called once.
void add_envd_routes(http::Router& router, Agent& agent);
// Parts of it, which share `envd`.
void add_envd_process_routes(http::Router& router, const std::shared_ptr<Envd>& envd);
void add_envd_filesystem_routes(http::Router& router, const std::shared_ptr<Envd>& envd);
void add_envd_watch_routes(http::Router& router, const std::shared_ptr<Envd>& envd);
void add_envd_file_routes(http::Router& router, const std::shared_ptr<Envd>& envd);
void add_envd_system_routes(http::Router& router, const std::shared_ptr<Envd>& envd);

// Who a request is for: the name in "Authorization: Basic base64(name:)", or `name`; "" is the default user.
// unauthenticated/unauthenticated "invalid username: 'x'".
struct EnvdUser {
  User user;
  std::shared_ptr<const Accounts> accounts;
};
Result<EnvdUser> envd_user(Agent& agent, std::string_view name);
Result<EnvdUser> envd_user(Agent& agent, const http::Exchange& exchange);

// An absolute path: "" is the default folder, "~" the home, a relative path starts at the home and is cleaned, an absolute one
// stays as it is. invalid_argument.
Result<std::string> envd_path(const Agent& agent, const User& user, std::string_view given);

// What E2B shows of a path (EntryInfo). Blocks: on the pool. not_found.
Result<json::object> envd_entry(const std::string& path, const Accounts& accounts);
// Makes the folders above `path`, and `path` itself with `whole`; new ones belong to the user. Blocks.
Result<> envd_make_folders(const std::string& path, bool whole, const User& user);

// Runs `work`; its error becomes {"code": status, "message"}, which is what E2B's plain routes answer.
Task<> envd_plain(http::Exchange& exchange, Task<> work);

}  // namespace space::agent
