// node's HTTP API, by subject. Paths and JSON of the data plane are those of the public API (api/openapi.yaml).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/json.h"
#include "http/router.h"
#include "node/mounts.h"
#include "node/pool_templates.h"
#include "node/publish.h"
#include "node/sandboxes.h"
#include "node/tokens.h"
#include "template/release.h"

namespace space::node {

struct RouteParts {  // all outlive the router
  asio::any_io_executor executor;
  Sandboxes& sandboxes;
  Pools& pools;
  Events& events;
  tmpl::TemplateStore& templates;
  vmm::Driver& driver;
  BlockingPool& disk;
  std::string vmm_version;  // as the warden says
  std::string limits;
  const TokenKey& tokens;
  Vault& vault;
  std::chrono::milliseconds agent_patience = std::chrono::seconds(10);  // for one of the agent's small answers
  BaseSource* bases = nullptr;                                          // of templates, to be told about
  Mounts* mounts = nullptr;                                             // of volumes
  PoolTemplates* pool_templates = nullptr;                              // to be told of names that moved
  Publisher* publisher = nullptr;                                       // without: nothing is published (tests of other things)
};

void add_node_routes(http::Router& router, RouteParts& parts);        // info, events, templates
void add_publish_routes(http::Router& router, RouteParts& parts);     // checkpoints as templates, for the api role
void add_sandbox_routes(http::Router& router, RouteParts& parts);     // lifecycle, for the api role
void add_command_routes(http::Router& router, RouteParts& parts);     // data plane: command sessions
void add_checkpoint_routes(http::Router& router, RouteParts& parts);  // checkpoints of a tenant, for the api role
void add_file_routes(http::Router& router, RouteParts& parts);        // data plane: files and watch
void add_volume_routes(http::Router& router, RouteParts& parts);      // the content of volumes and where they are mounted, for the api role
void add_envd_routes(http::Router& router, RouteParts& parts);        // data plane: E2B's in-sandbox protocol

// Shared by them.
json::array spans_json(const std::vector<Span>& spans);
json::object sandbox_json(const SandboxRecord& record);
Task<json::object> read_object(http::Exchange& exchange, std::size_t limit);  // an empty body is an empty object
Task<> reply_json(http::Exchange& exchange, int status, json::value body);
// A call about files in a tenant's sandbox, carried to its agent with those query parameters (relay.h): JSON, or a file down or up.
using Parameters = std::vector<std::string_view>;
Task<> carry_json(http::Exchange& exchange, RouteParts& parts, std::string method, std::string path, Parameters parameters,
                  std::string doing);
Task<> carry_down(http::Exchange& exchange, RouteParts& parts, std::string path, Parameters parameters);
Task<> carry_up(http::Exchange& exchange, RouteParts& parts, std::string path, Parameters parameters);

}  // namespace space::node
