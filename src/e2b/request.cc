#include "e2b/request.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <set>

#include "base/encoding.h"
#include "control/labels.h"

namespace space::e2b {
namespace {

constexpr std::size_t kBodyLimit = 4 << 20;
constexpr std::size_t kMostMetadata = 256, kMetadataLimit = 16 << 10;
constexpr std::size_t kMostEnv = 256, kLongestEnv = 64 << 10, kEnvLimit = 128 << 10;  // as the native API, names and values together
constexpr std::size_t kMostHttpsPorts = 128;

// Understood, and not what this server does.
auto not_here(std::string message) { return fail(ErrorKind::invalid_argument, "not_supported", std::move(message)); }

bool is_name(std::string_view text, std::string_view more) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || more.find(c) != std::string_view::npos;
  });
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<> check_metadata(const std::map<std::string, std::string>& metadata) {
  std::size_t size = 0;
  for (const auto& [name, value] : metadata) {
    TRY_VOID(control::check_label(name));
    size += name.size() + value.size();
  }
  if (size > kMetadataLimit) return invalid_request(fmt::format("metadata has more than {} bytes", kMetadataLimit));
  return {};
}

Result<> check_env(const std::map<std::string, std::string>& env) {
  std::size_t size = 0;
  for (const auto& [name, value] : env) {
    size += name.size() + value.size();
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos)
      return invalid_request(fmt::format("envVars cannot hold the name '{}'", name.substr(0, 64)));
  }
  if (size > kEnvLimit) return invalid_request(fmt::format("envVars has more than {} bytes", kEnvLimit));
  return {};
}

Result<> read_lifecycle(JsonReader& r, Settings& settings) {
  settings.auto_pause = r.boolean("autoPause", false);
  const bool said = r.has("autoPauseMemory");
  settings.pause_memory = r.boolean("autoPauseMemory", true);
  if (const json::object* resume = r.object("autoResume")) {
    JsonReader inner(*resume, "autoResume");
    inner.ignore_unknown();
    settings.auto_resume = inner.boolean("enabled", false);
    TRY_VOID(inner.done());
  }
  if (said && !settings.pause_memory && !settings.auto_pause) return invalid_request("autoPauseMemory needs autoPause");
  if (!settings.pause_memory && settings.auto_resume)
    return invalid_request("autoResume needs the memory to be kept: leave autoPauseMemory out");
  return {};
}

// An empty list or null asks for nothing.
bool is_given(const json::object& body, std::string_view name) {
  const json::value* value = body.if_contains(name);
  return value && !value->is_null() && !(value->is_array() && value->get_array().empty()) &&
         !(value->is_object() && value->get_object().empty());
}

// What asks for a part that is not here.
Result<> refuse_what_is_missing(const json::object& body) {
  const auto given = [&](std::string_view name) { return is_given(body, name); };
  if (given("mcp")) return not_here("this server starts no MCP gateway: leave mcp out, and start your MCP server as a command");
  if (given("iam")) return not_here("this server mints no workload identities: leave iam out, and bind credentials with network rules");
  return {};
}

// Absolute, clean, each once, and not where the system lives.
Result<std::vector<VolumeMount>> read_mounts(const json::array& list) {
  constexpr std::string_view kOfSystem[] = {"proc", "sys", "dev", "run", "etc", "usr", "bin", "sbin", "lib", "lib64"};
  TRY(std::vector<VolumeMount> mounts, decode_mounts(list));
  std::set<std::string_view> seen;
  for (VolumeMount& mount : mounts) {
    mount.volume.clear();
    const std::string_view path = mount.path;
    const auto refuse = [&](const char* why) {
      return invalid_request(fmt::format("a volume cannot be mounted on '{}': {}", is_utf8(path) ? path.substr(0, 100) : "?", why));
    };
    if (!path.starts_with('/') || path == "/" || path.ends_with('/'))
      return refuse("the path must be absolute and clean, such as /mnt/data");
    for (std::size_t at = 1, part = 0; at <= path.size(); ++part) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      const std::string_view name = path.substr(at, end - at);
      if (name.empty() || name == "." || name == ".." || name.find('\0') != name.npos)
        return refuse("the path must be absolute and clean, such as /mnt/data");
      if (part == 0 && std::find(std::begin(kOfSystem), std::end(kOfSystem), name) != std::end(kOfSystem))
        return refuse("the system lives there");
      at = end + 1;
    }
    if (!seen.insert(path).second) return refuse("it is there twice");
    for (const std::string_view other : seen)
      if (path.starts_with(fmt::format("{}/", other)) || other.starts_with(fmt::format("{}/", path))) return refuse("one lies in another");
  }
  return mounts;
}

Result<> check_https_ports(const json::array& ports) {
  for (const json::value& port : ports) {
    const std::int64_t number = port.is_int64() ? port.get_int64() : 0;
    if (number < 1 || number > 65'535) return invalid_request("httpsPorts must hold ports, from 1 to 65535");
    if (number == kEnvdPort)
      return invalid_request(fmt::format("httpsPorts cannot hold {}: the sandbox's own server listens there", kEnvdPort));
  }
  return {};
}

Result<> read_network(const json::object& network, Settings& settings) {
  JsonReader r(network, "network");
  r.ignore_unknown();
  settings.public_traffic = r.boolean("allowPublicTraffic", true);
  settings.mask_host = r.text("maskRequestHost", 0, 256, "");
  const json::array* https_ports = r.array("httpsPorts", kMostHttpsPorts);
  TRY_VOID(r.done());
  if (https_ports) TRY_VOID(check_https_ports(*https_ports));
  TRY_VOID(refuse_network(network));
  for (const char c : settings.mask_host)
    if (c <= 0x20 || c >= 0x7f || c == '/') return invalid_request("maskRequestHost must be an ASCII host, with a port or without");
  settings.network = network;
  return {};
}

}  // namespace

tl::unexpected<Error> invalid_request(std::string message) {
  return fail(ErrorKind::invalid_argument, "invalid_request", std::move(message));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

Result<> refuse_network(const json::object& network) {
  if (is_given(network, "egressProxy")) return not_here("this server sends nothing through a proxy of yours: leave egressProxy out");
  return {};
}

Task<json::object> read_body(http::Exchange& exchange) {
  CO_TRY(const std::string text, co_await exchange.read_body(kBodyLimit));
  if (text.empty()) co_return json::object();
  auto object = parse_json_object(text, kBodyLimit);
  if (!object) co_return invalid_request(fmt::format("the body is not valid JSON: {}", object.error().message));
  co_return object;
}

Result<CreateBody> read_create(const json::object& body, std::int64_t usual_timeout_s, bool usual_secure) {
  JsonReader r(body);
  r.ignore_unknown();
  CreateBody out;
  out.template_id = r.text("templateID", 1, 300);
  out.metadata = r.text_map("metadata", kMostMetadata, kMetadataLimit);
  out.env = r.text_map("envVars", kMostEnv, kLongestEnv);
  Settings& settings = out.settings;
  settings.secure = r.boolean("secure", usual_secure) || usual_secure;  // v2 knows no other
  if (const json::value* internet = body.if_contains("allow_internet_access"); internet && !internet->is_null())
    settings.internet = r.boolean("allow_internet_access", true);
  settings.made_here = true;
  TRY_VOID(read_lifecycle(r, settings));
  TRY_VOID(refuse_what_is_missing(body));
  const json::object* network = r.object("network");
  const json::array* mounts = r.array("volumeMounts", kMostMounts);
  TRY_VOID(r.done());
  if (mounts) {
    TRY(settings.mounts, read_mounts(*mounts));
  }
  if (network) TRY_VOID(read_network(*network, settings));
  if (!settings.public_traffic && !settings.secure) return invalid_request("allowPublicTraffic: false needs a secured sandbox");
  TRY(settings.timeout_s, read_timeout(body, "timeout", usual_timeout_s));
  if (settings.timeout_s <= 0) return invalid_request("Timeout must be greater than 0");
  TRY_VOID(check_metadata(out.metadata));
  TRY_VOID(check_env(out.env));
  return out;
}

Result<std::string> template_reference(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::string whole = lower(text);
  std::string_view rest = whole;
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    if (!is_name(rest.substr(0, slash), ""))
      return invalid_request(fmt::format("'{}' is not the name of a template", is_utf8(text) ? text.substr(0, 100) : "?"));
    rest.remove_prefix(slash + 1);
  }
  const std::size_t colon = rest.find(':');
  const std::string_view name = rest.substr(0, colon), tag = colon == std::string_view::npos ? "default" : rest.substr(colon + 1);
  if (!is_name(name, "") || !is_name(tag, "."))
    return invalid_request(fmt::format("'{}' is not the name of a template", is_utf8(text) ? text.substr(0, 100) : "?"));
  return fmt::format("{}:{}", name, tag == "default" ? "latest" : tag);
}

std::string template_id_of(std::string_view reference) {
  if (reference.ends_with(":latest")) reference.remove_suffix(7);
  return std::string(reference);
}

Result<std::int64_t> read_timeout(const json::object& body, std::string_view name, std::optional<std::int64_t> absent) {
  JsonReader r(body);
  r.ignore_unknown();
  const std::int64_t seconds = r.number(name, -kLongestTimeout_s, INT64_MAX, absent);
  TRY_VOID(r.done());
  if (seconds > kLongestTimeout_s) return invalid_request(fmt::format("Timeout cannot be greater than {} hours", kLongestTimeout_s / 3600));
  return seconds;
}

Result<std::map<std::string, std::string>> read_metadata_filter(std::string_view text) {
  const auto whole = percent_decode(text);
  if (!whole) return invalid_request("the metadata filter is not well encoded");
  std::map<std::string, std::string> out;
  for (std::string_view rest = *whole; !rest.empty();) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = pair.find('=');
    const auto name = percent_decode(pair.substr(0, equals)),
               value = percent_decode(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    if (!name || !value || equals == std::string_view::npos || !is_utf8(*name) || !is_utf8(*value))
      return invalid_request("the metadata filter is not well encoded");
    out[*name] = *value;
    if (out.size() > kMostMetadata) return invalid_request("the metadata filter has too many entries");
  }
  return out;
}

Result<std::size_t> read_limit(const http::Target& target) {
  const auto text = target.query_value("limit");
  if (!text) return 100U;
  const auto value = number<std::int64_t>(*text);
  if (!value || *value < 1) return invalid_request("limit must be a whole number from 1 on");
  return static_cast<std::size_t>(std::min<std::int64_t>(*value, 100));
}

Result<ListRequest> read_list(const http::Target& target) {
  ListRequest out;
  std::string states;
  for (const auto& [name, value] : target.query)
    if (name == "state") states += "," + value;
  if (!states.empty()) {
    out.running = out.paused = false;
    for (std::string_view rest = std::string_view(states).substr(1); !rest.empty();) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      const std::string_view one = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (one != "running" && one != "paused") return invalid_request("state must be running or paused");
      (one == "running" ? out.running : out.paused) = true;
    }
  }
  if (const auto metadata = target.query_value("metadata")) {
    TRY(out.metadata, read_metadata_filter(*metadata));
  }
  if (const auto after = target.query_value("startedAfter"); after && !after->empty()) {
    out.started_after_us = parse_time(*after);
    if (!out.started_after_us) return invalid_request("startedAfter must be a time such as 2026-01-02T03:04:05Z");
  }
  out.template_id = lower(target.query_value("template").value_or(""));
  if (out.template_id.find(':') != std::string::npos) return invalid_request("template cannot have a tag here");
  const std::string order = target.query_value("order").value_or("desc");
  if (order != "asc" && order != "desc") return invalid_request("order must be asc or desc");
  out.ascending = order == "asc";
  TRY(out.limit, read_limit(target));
  if (const auto token = target.query_value("nextToken"); token && !token->empty()) {
    const auto text = base64url_decode(*token);
    const std::size_t middle = text ? text->find("__") : std::string::npos;
    const auto created = middle == std::string::npos ? std::nullopt : number<std::int64_t>(std::string_view(*text).substr(0, middle));
    if (!created) return invalid_request("nextToken was not given by this server");
    out.after = {*created, text->substr(middle + 2)};
  }
  return out;
}

std::string next_token(std::int64_t created_ms, std::string_view id) {
  return base64url_encode(as_bytes(fmt::format("{}__{}", created_ms, id)));
}

Result<std::string> sandbox_id(std::string_view text) {
  text = text.substr(0, text.find('-'));
  const bool good = !text.empty() && text.size() <= 64 &&
                    std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  if (!good) return invalid_request("Invalid sandbox ID");
  return std::string(text);
}

std::optional<std::int64_t> parse_time(std::string_view text) {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != 't') || text[13] != ':' || text[16] != ':')
    return std::nullopt;
  const auto year = number<int>(text.substr(0, 4));
  const auto month = number<unsigned>(text.substr(5, 2)), day = number<unsigned>(text.substr(8, 2)),
             hour = number<unsigned>(text.substr(11, 2)), minute = number<unsigned>(text.substr(14, 2)),
             second = number<unsigned>(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  std::int64_t micros = 0;
  text.remove_prefix(19);
  if (text.starts_with('.')) {
    std::size_t digits = 0;
    for (text.remove_prefix(1); !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1))
      if (digits++ < 6) micros = micros * 10 + (text[0] - '0');
    if (digits == 0) return std::nullopt;
    for (; digits < 6; ++digits) micros *= 10;
  }
  std::int64_t offset = 0;
  if (text != "Z" && text != "z") {
    if (text.size() != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') return std::nullopt;
    const auto hours = number<unsigned>(text.substr(1, 2)), minutes = number<unsigned>(text.substr(4, 2));
    if (!hours || !minutes) return std::nullopt;
    offset = (static_cast<std::int64_t>(*hours) * 60 + *minutes) * 60 * (text[0] == '-' ? -1 : 1);
  }
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + *hour) * 3600 + *minute * 60 + *second - offset) * 1'000'000 + micros;
}

}  // namespace space::e2b
