#include "api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "base/random.h"
#include "control/labels.h"

namespace space::api {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

template <class F>
void split(std::string_view text, char separator, F each) {
  while (true) {
    const std::size_t at = text.find(separator);
    each(trimmed(text.substr(0, at)));
    if (at == std::string_view::npos) return;
    text.remove_prefix(at + 1);
  }
}

bool is_env_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && text.size() <= 256 && letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

}  // namespace

Result<> check_media_type(const http::Exchange& exchange) {
  const std::string_view type = exchange.headers().get("Content-Type");
  const std::string_view media = trimmed(type.substr(0, type.find(';')));
  if (exchange.has_body() && !media.empty() && !http::equal_no_case(media, "application/json"))
    return fail(ErrorKind::invalid_argument, "unsupported_media_type",
                fmt::format("the body is {}, and must be JSON", media.substr(0, 100)), "send `Content-Type: application/json`");
  return {};
}

Task<json::object> read_json(http::Exchange& exchange, std::string* raw) {
  CO_TRY_VOID(check_media_type(exchange));
  CO_TRY(std::string text, co_await exchange.read_body(kJsonLimit));
  if (raw) *raw = text;
  if (text.empty()) co_return json::object();
  if (!is_utf8(text)) co_return fail(ErrorKind::invalid_argument, "invalid_json", "the body is not UTF-8", "send JSON as UTF-8");
  co_return parse_json_object(text, kJsonLimit);
}

Result<std::chrono::seconds> preferred_wait(const http::Headers& headers) {
  std::chrono::seconds wait{0};
  bool bad = false;
  for (const auto& [name, value] : headers.fields()) {
    if (!http::equal_no_case(name, "Prefer")) continue;
    split(value, ',', [&](std::string_view preference) {
      if (preference.size() < 5 || !http::equal_no_case(preference.substr(0, 5), "wait=")) return;
      const auto seconds = whole_number(preference.substr(5));
      if (!seconds || *seconds < 0)
        bad = true;
      else
        wait = std::min<std::chrono::seconds>(std::chrono::seconds(*seconds), kLongestWait);
    });
  }
  if (bad)
    return fail(ErrorKind::invalid_argument, "invalid_header", "Prefer: wait needs a whole number of seconds",
                "send for example `Prefer: wait=30`");
  return wait;
}

void Query::reject(std::string_view name, std::string_view what) {
  if (!error_)
    error_ = Error{ErrorKind::invalid_argument, "invalid_query", fmt::format("the query parameter {} {}", name.substr(0, 64), what),
                   "see the parameters of this path in /openapi.json"};
}

std::string Query::text(std::string_view name, std::size_t most) {
  known_.emplace(name);
  std::string out;
  int seen = 0;
  for (const auto& [key, value] : target_.query) {
    if (key != name) continue;
    if (++seen > 1) reject(name, "stands there more than once");
    if (value.size() > most) reject(name, fmt::format("is longer than {} bytes", most));
    out = value;
  }
  return out;
}

std::int64_t Query::number(std::string_view name, std::int64_t least, std::int64_t most, std::int64_t absent) {
  if (!target_.query_value(name)) {
    known_.emplace(name);
    return absent;
  }
  const auto value = whole_number(text(name, 32));
  if (value && *value >= least && *value <= most) return *value;
  reject(name, fmt::format("must be a whole number from {} to {}", least, most));
  return absent;
}

std::vector<std::string> Query::list(std::string_view name) {
  known_.emplace(name);
  std::vector<std::string> out;
  for (const auto& [key, value] : target_.query) {
    if (key != name) continue;
    split(value, ',', [&](std::string_view item) { out.emplace_back(item); });
    if (out.size() > 32) reject(name, "has more than 32 values");
  }
  return out;
}

std::map<std::string, std::string> Query::starting_with(std::string_view prefix, std::size_t most) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : target_.query) {
    if (!key.starts_with(prefix)) continue;
    known_.emplace(key);
    if (key.size() == prefix.size() || !out.emplace(key.substr(prefix.size()), value).second || out.size() > most)
      reject(key, "is empty, doubled, or one too many");
  }
  return out;
}

Result<> Query::done() {
  for (const auto& [key, value] : target_.query)
    if (!known_.contains(key)) reject(key, "is not known here");
  if (error_) return tl::unexpected(*error_);
  return {};
}

Result<> no_query(const http::Exchange& exchange) { return Query(exchange.target()).done(); }

Result<std::optional<std::int64_t>> read_event_id(std::string_view text) {
  if (text.empty()) return std::optional<std::int64_t>();
  const auto id = whole_number(text);
  if (!id || *id < 0)
    return fail(ErrorKind::invalid_argument, "invalid_event_id", "an event id is a whole number here", "send an id that an event carried");
  return id;
}

control::Page read_page(Query& query) {
  control::Page page;
  page.limit = static_cast<std::size_t>(query.number("limit", 1, 200, 50));
  const std::string cursor = query.text("after", 64);
  if (cursor.empty()) return page;
  const auto decoded = base64url_decode(cursor);
  const auto sequence = decoded && decoded->starts_with("s1.") ? whole_number(std::string_view(*decoded).substr(3)) : std::nullopt;
  if (!sequence || *sequence < 1 || write_cursor(*sequence) != cursor) query.reject("after", "is not a cursor that this server gave out");
  page.before = sequence.value_or(0);
  return page;
}

std::string write_cursor(std::int64_t sequence) { return base64url_encode(as_bytes(fmt::format("s1.{}", sequence))); }

bool is_template_reference(std::string_view text) {
  const auto word = [](std::string_view part, bool dots) {
    return !part.empty() && part.size() <= 71 && std::ranges::all_of(part, [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || (dots && c == '.');
    });
  };
  const std::size_t colon = text.find(':');
  return word(text.substr(0, colon), false) && (colon == std::string_view::npos || word(text.substr(colon + 1), true));
}

Result<CreateBody> read_create(const json::object& body) {
  JsonReader reader(body);
  CreateBody out;
  out.template_reference = reader.text("template", 1, 160, "base");
  if (!is_template_reference(out.template_reference)) reader.reject("template", "must be a template's name, name:tag or sha256:digest");
  out.cpus = reader.optional_number("cpus", 1, 64);
  out.checkpoint = reader.text("checkpoint", 0, 40, "");
  if (!out.checkpoint.empty()) {
    if (!is_id(out.checkpoint)) reader.reject("checkpoint", "must be a checkpoint's id");
    for (const char* name : {"template", "cpus", "memory_mib", "disk_mib"})
      if (reader.has(name) && !body.at(name).is_null()) reader.reject(name, "cannot be given with a checkpoint, which has its own");
  }
  out.memory_mib = reader.optional_number("memory_mib", 128, 1 << 20);
  out.disk_mib = reader.optional_number("disk_mib", 256, 1 << 24);
  out.env = reader.text_map("env", 256, 32 << 10);
  out.metadata = reader.text_map("metadata", 64, 4 << 10);
  out.time_limit_s = reader.number("time_limit_s", 1, 30LL * 24 * 3600, 0);
  if (reader.has("egress")) out.egress = reader.value("egress");
  out.rest.idle_pause_s = reader.number("idle_pause_s", 1, 30LL * 24 * 3600, 0);
  out.rest.idle_suspend_s = reader.number("idle_suspend_s", 1, 30LL * 24 * 3600, 0);
  out.rest.idle_cpu_percent = reader.number("idle_cpu_percent", 1, 100, control::kIdleCpuPercent);
  const std::string at_limit = reader.text("at_time_limit", 1, 16, "delete");
  if (at_limit != "delete" && at_limit != "suspend") reader.reject("at_time_limit", "must be delete or suspend");
  out.rest.suspend_at_limit = at_limit == "suspend";
  std::size_t size = 0;
  for (const auto& [name, value] : out.metadata) {
    size += name.size() + value.size();
    if (name.empty() || has_nul(name) || has_nul(value)) reader.reject("metadata", "must have names of at least one byte, and no NUL");
  }
  if (size > kMetadataLimit) reader.reject("metadata", fmt::format("must not be larger than {} bytes in all", kMetadataLimit));
  size = 0;
  for (const auto& [name, value] : out.env) {
    size += name.size() + value.size();
    if (!is_env_name(name) || has_nul(value)) reader.reject("env", "must map names like PATH_2 to texts without NUL");
  }
  if (size > kEnvLimit) reader.reject("env", fmt::format("must not be larger than {} bytes in all", kEnvLimit));
  TRY_VOID(reader.done());
  for (const auto& [name, value] : out.metadata) TRY_VOID(control::check_label(name));
  return out;
}

}  // namespace space::api
