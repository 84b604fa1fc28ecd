// Heads of requests and answers: found in the byte stream, checked strictly, parsed by Beast, and written. For this folder and src/egress.
//
// Beast's parser is the grammar. In front of it stand the rules that it does not enforce and that decide where a message ends,
// because two readers that disagree on that are how requests are smuggled (RFC 9112, section 11.2): every line ends with CRLF,
// no folded lines, exactly one Host, one Content-Length of digits or one "Transfer-Encoding: chunked", never both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace space::http {

// Looks for the end of a head in bytes that come in pieces; each byte is looked at once.
class HeadScanner {
 public:
  explicit HeadScanner(std::size_t limit) : limit_(limit) {}
  // `bytes`: everything so far. The head's length with its empty line, or nullopt when more is needed.
  Result<std::optional<std::size_t>> scan(std::string_view bytes);

 private:
  std::size_t limit_;
  std::size_t at_ = 0;
  bool first_line_done_ = false;
};

enum class Framing { none, sized, chunked, until_close };

struct Head {
  std::string method;  // requests
  std::string target;
  int status = 0;  // answers
  int minor = 1;   // HTTP/1.x
  Headers headers;
  Framing framing = Framing::none;
  std::optional<std::uint64_t> content_length;
  bool keep_alive = false;
  bool expects_continue = false;
};

// `text` is one whole head as HeadScanner measured it.
Result<Head> parse_request_head(std::string_view text, std::size_t max_fields);
// `method`: of the request that is answered; HEAD has no body (RFC 9112, section 6.3).
Result<Head> parse_response_head(std::string_view text, std::size_t max_fields, std::string_view method);

// A name or value with a line break in it would start another field: such a field is an error of whoever made it.
Result<> append_field(std::string& out, std::string_view name, std::string_view value);
bool lists_token(std::string_view list, std::string_view token);  // a comma-separated field that holds the token, case aside
bool is_hop_by_hop(std::string_view name);  // RFC 9110, section 7.6.1; those that frame a message on one connection too

}  // namespace space::http
