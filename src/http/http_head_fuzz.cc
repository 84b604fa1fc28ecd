// Heads of requests and answers through the checks of the server and the client: how the bytes are cut into pieces must not
// matter, and what is accepted can be read in one way only.
#include <algorithm>
#include <cstdlib>

#include "http/head.h"

namespace {

void check(const space::http::Head& head) {
  using space::http::Framing;
  if (head.headers.count("Content-Length") + head.headers.count("Transfer-Encoding") > 1) std::abort();
  if (head.framing == Framing::chunked && head.content_length) std::abort();
  if (head.framing == Framing::sized && head.content_length.value_or(0) == 0) std::abort();
  for (const auto& [name, value] : head.headers.fields()) {
    std::string text;
    if (!space::http::append_field(text, name, value)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace space::http;
  if (size == 0) return 0;
  const std::size_t step = data[0] % 7U + 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::size_t kLimit = 2000;
  HeadScanner whole(kLimit), pieces(kLimit);
  const auto at_once = whole.scan(text);
  space::Result<std::optional<std::size_t>> in_pieces;
  for (std::size_t n = 0; in_pieces && !*in_pieces && n < text.size();) {
    n = std::min(n + step, text.size());
    in_pieces = pieces.scan(text.substr(0, n));
  }
  if (at_once.has_value() != in_pieces.has_value() || (at_once && *at_once != *in_pieces)) std::abort();
  if (!at_once || !*at_once) return 0;
  const std::string_view head = text.substr(0, **at_once);
  if (const auto request = parse_request_head(head, 50)) {
    check(*request);
    if (request->framing == Framing::until_close || request->headers.count("Host") > 1) std::abort();
  }
  if (const auto answer = parse_response_head(head, 50, "GET")) {
    check(*answer);
    if (answer->framing == Framing::until_close && answer->keep_alive) std::abort();
  }
  return 0;
}
