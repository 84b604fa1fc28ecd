// Reading what E2B's clients send. Fields that are not known are ignored, as E2B does; what is known is checked.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "base/json.h"
#include "e2b/settings.h"
#include "http/server.h"

namespace space::e2b {

inline constexpr std::int64_t kLongestTimeout_s = 30 * 86'400;

tl::unexpected<Error> invalid_request(std::string message);
std::string lower(std::string_view text);  // ASCII letters alone

Task<json::object> read_body(http::Exchange& exchange);  // no body is an empty object

struct CreateBody {
  std::string template_id;  // as it came
  std::map<std::string, std::string> metadata, env;
  Settings settings;
};
// `usual_timeout_s`, `usual_secure`: what the two versions of the call take when nothing is said.
Result<CreateBody> read_create(const json::object& body, std::int64_t usual_timeout_s, bool usual_secure);
// The network options that this server has not: not_supported. Of a create and of a change.
Result<> refuse_network(const json::object& network);

// A name of a template as SPACE knows it: "base" → "base:latest", "ns/base:default" → "base:latest". Lower case.
Result<std::string> template_reference(std::string_view text);
std::string template_id_of(std::string_view reference);  // the other way: "base:latest" → "base"

// The "timeout" of a body, in seconds.
Result<std::int64_t> read_timeout(const json::object& body, std::string_view name, std::optional<std::int64_t> absent);

// A metadata filter: doubly encoded pairs.
Result<std::map<std::string, std::string>> read_metadata_filter(std::string_view text);

// What a list request asks for.
struct ListRequest {
  bool running = true, paused = true;
  std::map<std::string, std::string> metadata;
  std::optional<std::int64_t> started_after_us;
  std::string template_id;
  bool ascending = false;
  std::size_t limit = 100;
  std::optional<std::pair<std::int64_t, std::string>> after;  // created_ms and id of the page before's last
};
Result<ListRequest> read_list(const http::Target& target);
std::string next_token(std::int64_t created_ms, std::string_view id);

// A limit of a page: 1 to 100.
Result<std::size_t> read_limit(const http::Target& target);

// A name of a sandbox in a path, without the old suffix. invalid_argument when it cannot be one.
Result<std::string> sandbox_id(std::string_view text);

// RFC 3339 in UTC or with an offset, as microseconds since the epoch.
std::optional<std::int64_t> parse_time(std::string_view text);

}  // namespace space::e2b
