// Request targets in origin form (RFC 9112, section 3.2.1).
#include <algorithm>
#include <fmt/format.h>

#include "base/encoding.h"
#include "http/message.h"

namespace space::http {
namespace {

constexpr std::size_t kMaxTarget = 8 << 10;
constexpr std::size_t kMaxSegments = 64;
constexpr std::size_t kMaxQuery = 128;

auto bad(std::string message, std::string next = "escape the path and the query as RFC 3986 says") {
  return fail(ErrorKind::invalid_argument, "bad_target", std::move(message), std::move(next));
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

Result<std::string> decode_segment(std::string_view text) {
  if (text.empty()) return bad("the path has an empty segment", "write one slash between segments and none at the end");
  auto decoded = percent_decode(text);
  if (!decoded) return bad("the path has a bad percent escape");
  if (*decoded == "." || *decoded == "..") return bad("the path has a dot segment", "send the path already resolved");
  if (std::any_of(decoded->begin(), decoded->end(), is_control)) return bad("the path has a control byte");
  return std::move(*decoded);
}

// Unlike a segment a query value may hold any byte but NUL: names of files are allowed to.
Result<std::string> decode_query(std::string_view text) {
  auto decoded = percent_decode(text, true);
  if (!decoded) return bad("the query has a bad percent escape");
  if (decoded->find('\0') != std::string::npos) return bad("the query has a NUL byte");
  return std::move(*decoded);
}

}  // namespace

std::optional<std::string> Target::query_value(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return std::nullopt;
}

Result<> check_raw_target(std::string_view raw) {
  if (raw.size() > kMaxTarget)
    return fail(ErrorKind::invalid_argument, "target_too_long", fmt::format("the request target has more than {} bytes", kMaxTarget),
                "send long values in the body");
  if (raw.empty() || raw[0] != '/') return bad("the request target must start with a slash", "send a path, without scheme and host");
  if (!std::all_of(raw.begin(), raw.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '#'; }))
    return bad("the request target has a byte that must be escaped");
  return {};
}

Result<Target> parse_target(std::string_view raw) {
  TRY_VOID(check_raw_target(raw));
  Target target;
  target.raw = raw;
  const std::size_t mark = raw.find('?');
  std::string_view path = raw.substr(1, mark == raw.npos ? raw.npos : mark - 1);
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    if (target.segments.size() == kMaxSegments) return bad(fmt::format("the path has more than {} segments", kMaxSegments));
    TRY(std::string segment, decode_segment(path.substr(0, slash)));
    target.segments.push_back(std::move(segment));
    if (slash == path.npos) break;
    path.remove_prefix(slash + 1);
    if (path.empty()) return bad("the path ends with a slash", "leave the last slash out");
  }

  std::string_view query = mark == raw.npos ? std::string_view() : raw.substr(mark + 1);
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(end == query.npos ? query.size() : end + 1);
    if (pair.empty()) continue;
    if (target.query.size() == kMaxQuery) return bad(fmt::format("the query has more than {} values", kMaxQuery));
    const std::size_t equals = pair.find('=');
    TRY(std::string name, decode_query(pair.substr(0, equals)));
    TRY(std::string value, decode_query(equals == pair.npos ? std::string_view() : pair.substr(equals + 1)));
    target.query.emplace_back(std::move(name), std::move(value));
  }
  return target;
}

}  // namespace space::http
