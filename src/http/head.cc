#include "http/head.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <fmt/format.h>

namespace space::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

auto bad_head(std::string message) {
  return fail(ErrorKind::invalid_argument, "bad_message", std::move(message), "send HTTP/1.1 as RFC 9112 defines it");
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Beast calls back with views into the text; only the head is given to it, bodies are read past it.
template <bool IsRequest>
class Parser final : public beast::http::basic_parser<IsRequest> {
 public:
  Parser(Head& head, std::size_t max_fields) : head_(head), max_fields_(max_fields) {}
  bool too_many() const { return too_many_; }

 private:
  using Text = boost::beast::string_view;
  using Code = boost::beast::error_code;
  static std::string str(Text text) { return std::string(text.data(), text.size()); }

  void on_request_impl(beast::http::verb, Text method, Text target, int version, Code&) override {
    head_.method = str(method);
    head_.target = str(target);
    head_.minor = version - 10;
  }
  void on_response_impl(int status, Text, int version, Code&) override {
    head_.status = status;
    head_.minor = version - 10;
  }
  void on_field_impl(beast::http::field, Text name, Text value, Code& error) override {
    if (head_.headers.fields().size() == max_fields_) {
      too_many_ = true;
      error = beast::http::error::header_limit;
      return;
    }
    head_.headers.add(str(name), str(value));
  }
  void on_header_impl(Code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Code&) override {}
  std::size_t on_body_impl(Text, Code&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, Text, Code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text, Code&) override { return 0; }
  void on_finish_impl(Code&) override {}

  Head& head_;
  std::size_t max_fields_;
  bool too_many_ = false;
};

template <bool IsRequest>
Result<Head> parse(std::string_view text, std::size_t max_fields) {
  Head head;
  Parser<IsRequest> parser(head, max_fields);
  parser.header_limit(static_cast<std::uint32_t>(text.size() + 1));
  parser.body_limit(boost::none);
  parser.skip(true);
  boost::beast::error_code error;
  const std::size_t used = parser.put(asio::const_buffer(text.data(), text.size()), error);
  if (parser.too_many())
    return fail(ErrorKind::invalid_argument, "headers_too_large", fmt::format("more than {} header fields", max_fields),
                "send fewer header fields");
  if (error == beast::http::error::bad_version)
    return fail(ErrorKind::invalid_argument, "version_not_supported", "only HTTP/1.1 and HTTP/1.0 are spoken here", "send HTTP/1.1");
  if (error) return bad_head(fmt::format("the head is malformed: {}", error.message()));
  if (used != text.size() || !parser.is_header_done()) return bad_head("the head is malformed");
  head.keep_alive = parser.keep_alive();

  // Who sends both, or one of them twice, wants two readers to disagree on where the message ends.
  const std::size_t lengths = head.headers.count("Content-Length"), encodings = head.headers.count("Transfer-Encoding");
  if (lengths + encodings > 1) return bad_head("more than one Content-Length or Transfer-Encoding");
  if (lengths == 1) {
    if (!all_digits(head.headers.get("Content-Length")) || !parser.content_length())
      return bad_head("Content-Length must be one decimal number");
    head.content_length = *parser.content_length();
    head.framing = *head.content_length > 0 ? Framing::sized : Framing::none;
  }
  if (encodings == 1) {
    if (head.minor == 0) return bad_head("Transfer-Encoding in HTTP/1.0");
    if (!equal_no_case(head.headers.get("Transfer-Encoding"), "chunked"))
      return bad_head("the only Transfer-Encoding spoken here is chunked");
    head.framing = Framing::chunked;
  }
  return head;
}

bool is_token_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

}  // namespace

bool lists_token(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t')) one.remove_suffix(1);
    if (equal_no_case(one, token)) return true;
  }
  return false;
}

Result<std::optional<std::size_t>> HeadScanner::scan(std::string_view bytes) {
  const std::size_t end = std::min(bytes.size(), limit_);
  for (; at_ < end; ++at_) {
    const char c = bytes[at_];
    if (c == '\n') {
      if (at_ == 0 || bytes[at_ - 1] != '\r') return bad_head("a line of the head ends without CR");
      if (at_ >= 3 && bytes[at_ - 2] == '\n') return std::optional(at_ + 1);
      if (at_ == 1) return bad_head("the head starts with an empty line");
      first_line_done_ = true;
    } else if (at_ > 0 && bytes[at_ - 1] == '\r') {
      return bad_head("a CR inside a line of the head");
    } else if (at_ > 0 && bytes[at_ - 1] == '\n' && (c == ' ' || c == '\t')) {
      return bad_head("a folded header line");
    } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\r' && c != '\t') || c == 0x7f) {
      return bad_head("a control byte in the head");
    }
  }
  if (bytes.size() < limit_) return std::optional<std::size_t>();
  if (!first_line_done_)
    return fail(ErrorKind::invalid_argument, "target_too_long", fmt::format("the first line has more than {} bytes", limit_),
                "send long values in the body");
  return fail(ErrorKind::invalid_argument, "headers_too_large", fmt::format("the head has more than {} bytes", limit_),
              "send fewer or shorter header fields");
}

Result<Head> parse_request_head(std::string_view text, std::size_t max_fields) {
  TRY(Head head, parse<true>(text, max_fields));
  if (head.method.size() > 32) return bad_head("the method is too long");
  const std::size_t hosts = head.headers.count("Host");
  if (hosts > 1 || (hosts == 0 && head.minor == 1)) return bad_head("exactly one Host header is needed");
  if (const auto expect = head.headers.get("Expect"); !expect.empty() && head.minor == 1) {
    if (!equal_no_case(expect, "100-continue"))
      return fail(ErrorKind::invalid_argument, "expectation_failed", "the only Expect known here is 100-continue",
                  "leave the Expect header out");
    head.expects_continue = head.framing != Framing::none;
  }
  return head;
}

Result<Head> parse_response_head(std::string_view text, std::size_t max_fields, std::string_view method) {
  TRY(Head head, parse<false>(text, max_fields));
  if (head.status < 100 || head.status > 599) return bad_head("the status is not from 100 to 599");
  const bool no_body = method == "HEAD" || head.status < 200 || head.status == 204 || head.status == 304;
  if (no_body) {
    head.framing = Framing::none;
  } else if (head.framing == Framing::none && !head.content_length) {
    head.framing = Framing::until_close;
  }
  if (head.framing == Framing::until_close) head.keep_alive = false;
  return head;
}

Result<> append_field(std::string& out, std::string_view name, std::string_view value) {
  const bool good_value =
      std::none_of(value.begin(), value.end(), [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; });
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_token_char) || !good_value)
    return fail(ErrorKind::internal, "bad_header_field", "a header field holds a byte that no header field may hold");
  out.append(name).append(": ").append(value).append("\r\n");
  return {};
}

bool is_hop_by_hop(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "Connection", "Keep-Alive",        "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "TE",
      "Trailer",    "Transfer-Encoding", "Upgrade",          "Content-Length"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](std::string_view known) { return equal_no_case(known, name); });
}

}  // namespace space::http
