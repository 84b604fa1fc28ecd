#include "cli/connection.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>

#include "base/file.h"

namespace space::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Result<std::string> key_from(const std::filesystem::path& file) {
  TRY(std::string key, read_file(file, 4096));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' ')) key.pop_back();
  return key;
}

}  // namespace

Result<Connection> parse_url(const std::string& url) {
  const auto refuse = [&] {
    return fail(ErrorKind::invalid_argument, "bad_url", fmt::format("\"{}\" is not the address of a server", url),
                "write http://127.0.0.1:7070");
  };
  Connection out;
  out.tls = url.starts_with("https://");
  if (!out.tls && !url.starts_with("http://")) return refuse();
  std::string_view rest = std::string_view(url).substr(out.tls ? 8 : 7);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#@ ") != std::string_view::npos) return refuse();
  out.port = out.tls ? 443 : 80;
  const auto colon = rest.rfind(':');
  const auto bracket = rest.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const auto digits = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
    if (error != std::errc{} || end != digits.data() + digits.size() || out.port == 0) return refuse();
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return refuse();
  out.host = rest;
  out.url = url;
  return out;
}

Result<Connection> find_connection(const ConnectionOptions& options) {
  std::string url = options.url.empty() ? environment("SPACE_URL") : options.url;
  if (url.empty()) url = "http://127.0.0.1:7070";
  TRY(Connection out, parse_url(url));
  out.ca_file = options.ca_file.empty() ? environment("SPACE_CA_FILE") : options.ca_file.string();
  if (!options.key_file.empty()) {
    TRY(out.key, key_from(options.key_file));
    return out;
  }
  out.key = environment("SPACE_API_KEY");
  if (!out.key.empty()) return out;
  const std::string named = environment("SPACE_KEY_FILE");
  if (!named.empty()) {
    TRY(out.key, key_from(named));
    return out;
  }
  const std::filesystem::path data_dir = options.data_dir.empty() ? "/var/lib/space" : options.data_dir;
  // Nobody named this one, so a missing or unreadable file only means that there is no key.
  if (auto key = key_from(data_dir / "first.key")) out.key = std::move(*key);
  return out;
}

}  // namespace space::cli
