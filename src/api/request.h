// Reading what a client sends: bodies, preferences, pages, ids. Everything is bounded; what is wrong is named.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "base/json.h"
#include "control/store.h"
#include "control/update.h"
#include "http/server.h"

namespace space::api {

inline constexpr std::size_t kJsonLimit = 1 << 20;
inline constexpr std::size_t kMetadataLimit = 16 << 10, kEnvLimit = 128 << 10;  // names and values together
inline constexpr std::chrono::seconds kLongestWait{300};

// unsupported_media_type when a body is there and is said to be something else than JSON.
Result<> check_media_type(const http::Exchange& exchange);

// The JSON object of the body; an empty body is an empty object. unsupported_media_type, body_too_large, invalid_json, …
Task<json::object> read_json(http::Exchange& exchange, std::string* raw = nullptr);

// "Prefer: wait=N" (RFC 7240), at most kLongestWait; 0 without.
Result<std::chrono::seconds> preferred_wait(const http::Headers& headers);

// The query of a request whose parameters are all known. Asking twice for a name, or naming one that was never asked for, is
// an error: invalid_query.
class Query {
 public:
  explicit Query(const http::Target& target) : target_(target) {}
  std::string text(std::string_view name, std::size_t most);  // absent: ""
  std::int64_t number(std::string_view name, std::int64_t least, std::int64_t most, std::int64_t absent);
  std::vector<std::string> list(std::string_view name);  // comma separated, or given several times
  std::map<std::string, std::string> starting_with(std::string_view prefix, std::size_t most);
  void reject(std::string_view name, std::string_view what);
  Result<> done();

 private:
  const http::Target& target_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

// For a request that has no parameters in its query.
Result<> no_query(const http::Exchange& exchange);

// The number in a Last-Event-ID or an `after`; nothing when there is none. What is no whole number: invalid_event_id.
Result<std::optional<std::int64_t>> read_event_id(std::string_view text);

// limit= and after=.
control::Page read_page(Query& query);
std::string write_cursor(std::int64_t sequence);

// A create's body. Its limits stand in api/openapi.yaml too.
struct CreateBody {
  std::string checkpoint;  // "": from the template; else template and size are the checkpoint's
  std::string template_reference;
  std::optional<std::int64_t> cpus, memory_mib, disk_mib;
  std::map<std::string, std::string> env, metadata;
  std::int64_t time_limit_s = 0;
  std::optional<json::value> egress;
  control::RestPolicy rest;
};
Result<CreateBody> read_create(const json::object& body);

// What an update says; null takes away. `egress` is as it came: the gateway checks it.
struct UpdateBody {
  control::SandboxUpdate update;
  std::optional<json::value> egress;
};
Result<UpdateBody> read_update(const json::object& body);

bool is_template_reference(std::string_view text);  // "base", "base:latest", "sha256:<64 hex>"

}  // namespace space::api
