// What every request about files names: whose rights, and which path.
#pragma once

#include <memory>
#include <string>

#include "agent/agent.h"
#include "http/router.h"

namespace space::agent {

struct FileRequest {
  User user;
  Identity identity;
  std::string path;  // absolute
  std::shared_ptr<const Accounts> accounts;
};

// From the query's `path` and `user`.
Result<FileRequest> file_request(Agent& agent, const http::Exchange& exchange);
Result<FileRequest> file_request(Agent& agent, std::string_view user, std::string_view path);

// The routes of content.cc's and watch.cc's things.
void add_content_routes(http::Router& router, Agent& agent);
void add_watch_routes(http::Router& router, Agent& agent);

}  // namespace space::agent
