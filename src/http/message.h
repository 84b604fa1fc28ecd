// HTTP messages as plain values (RFC 9110, 9112). No Beast here: its templates stay in the sources of this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace space::http {

// Header fields in the order they came; names are compared without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}
  std::string_view get(std::string_view name) const;  // the first one, "" when absent
  bool has(std::string_view name) const;
  std::size_t count(std::string_view name) const;
  void set(std::string_view name, std::string value);  // replaces all of that name
  void add(std::string_view name, std::string value);
  void remove(std::string_view name);
  void remove_starting_with(std::string_view start);
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

bool equal_no_case(std::string_view a, std::string_view b);
std::string_view reason_phrase(int status);

// A request target in origin form, split once and strictly: the path's segments are percent-decoded after splitting, so an
// encoded slash stays inside its segment. Refused: other forms, empty or dot segments, control bytes, bad escapes, over 8 kB.
struct Target {
  std::string raw;                                         // as sent
  std::vector<std::string> segments;                       // "/v1/sandboxes/x" → {"v1","sandboxes","x"}
  std::vector<std::pair<std::string, std::string>> query;  // decoded; '+' is a space
  std::optional<std::string> query_value(std::string_view name) const;
  // Servers that carry other servers' requests (Options::any_target): why `raw` is none of ours. Then nothing but `raw` is set.
  std::optional<Error> refused;
};
Result<Target> parse_target(std::string_view raw);
// Whether it can stand in a request line at all: origin form, printable, at most 8 kB.
Result<> check_raw_target(std::string_view raw);

struct Request {
  std::string method = "GET";
  std::string target = "/";
  Headers headers;
  std::string body;
  std::string upgrade = {};  // the protocol to switch to ("websocket"), see ClientStream::upgraded
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
};

int status_of(const Error& error);  // by its code where HTTP has a status for it, else by its kind
// An error as application/problem+json (RFC 9457): type, title, status, code, detail, next; and back (client side).
Response problem(const Error& error);
Error error_from_response(int status, std::string_view body);
Response json_response(int status, std::string body);

}  // namespace space::http
