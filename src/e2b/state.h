// What the handlers of this folder share. Belongs to the role's loop.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "e2b/e2b.h"
#include "e2b/request.h"
#include "e2b/settings.h"
#include "http/router.h"

namespace space::e2b {

inline constexpr const char* kEnvdVersion = "0.6.13";  // what the agent's part of the protocol answers to

struct Sample {  // of a sandbox's own figures
  std::int64_t time_ms = 0;
  json::object figures;  // as the agent's /metrics gives them, checked
};

struct State {
  State(Parts p, Options o) : parts(std::move(p)), options(std::move(o)), moved(parts.executor) { random_bytes(link_key); }
  ~State() { wipe(link_key); }
  Parts parts;
  Options options;
  http::Router router;
  Sha256 link_key{};                                             // proves links for uploads; of this process
  std::map<std::string, std::shared_ptr<const Settings>> known;  // by sandbox; what the store has too
  std::set<std::string> moving;                                  // sandboxes that are being paused or woken
  Signal moved;                                                  // one of them is not any more
  std::map<std::string, std::vector<Sample>> samples;
  std::set<std::string> placing;  // credentials that no sandbox's document names yet
};

// A sandbox of the tenant's that E2B's clients see: it runs or is paused.
struct Found {
  control::Sandbox sandbox;
  std::shared_ptr<const Settings> settings;
  bool running = false;
};
// sandbox_not_found for everything else: other tenants', ended and deleted ones. Waits while it is being paused or woken.
Task<Found> find(State& state, std::string tenant, std::string id);
Task<Found> find(State& state, const http::Exchange& exchange);  // {id} of the path, the key's tenant
bool is_running(control::SandboxState state);
bool is_paused(control::SandboxState state);

Task<std::shared_ptr<const Settings>> settings_of(State& state, std::string id);
Task<> put_settings(State& state, std::string id, Settings settings);

// One operation, from its acceptance to its end; its error when it failed.
// `request`: the operation's own words, as JSON.
Task<control::Sandbox> change(State& state, std::string tenant, std::string id, control::OperationKind kind, std::string request = {});
// A new sandbox whose template, size and network are set; it gets the rest, and runs when this returns. Out of the checkpoint of that
// id, unless it is "".
Task<control::Sandbox> launch(State& state, control::Sandbox sandbox, CreateBody wanted, std::string checkpoint);
Task<> pause(State& state, Found found, bool memory);
Task<Found> wake(State& state, Found found, bool memory = true);  // without memory: boots from its disk

struct Tokens {
  std::string envd, traffic;
};
Task<Tokens> tokens_of(State& state, const control::Sandbox& sandbox);

const std::string& tenant_of(const http::Exchange& exchange);
Task<> reply(http::Exchange& exchange, int status, const json::value& body);
Task<> reply_empty(http::Exchange& exchange);  // 204
json::object error_body(const Error& error);   // {"code","message","error_code"}
http::Response error_answer(const Error& error);

// The routes, by subject.
void add_sandbox_routes(State& state);
void add_lifecycle_routes(State& state);
void add_snapshot_routes(State& state);  // snapshots, forks
void add_figure_routes(State& state);    // metrics
void add_log_routes(State& state);
void add_secret_routes(State& state);
void add_template_routes(State& state);
void add_volume_routes(State& state);
void add_build_routes(State& state);
void add_missing_routes(State& state);  // what E2B has and this server has not
using Handler = Task<> (*)(State&, http::Exchange&);
void add(State& state, std::string_view method, std::string_view pattern, Handler handler);

// Traffic for sandboxes.
struct Destination {
  std::string sandbox;
  std::uint16_t port = 0;
};
bool is_traffic(const State& state, const http::Exchange& exchange);
asio::awaitable<bool> is_ours(State& state, http::Exchange& exchange);  // of traffic
Task<> carry_traffic(State& state, http::Exchange& exchange);

}  // namespace space::e2b
