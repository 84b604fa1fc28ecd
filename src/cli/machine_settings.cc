#include "cli/machine_settings.h"

#include <boost/url.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/file.h"
#include "template/command.h"

namespace space::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kFileLimit = 1 << 20;
constexpr auto kToolLimit = std::chrono::seconds(10);

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

template <class Each>
void each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    each(trim(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Everything in a text that looks like an http or https URL.
void collect_urls(std::string_view text, std::vector<std::string>& out) {
  for (std::size_t at = text.find("http"); at != text.npos; at = text.find("http", at + 4)) {
    std::string_view rest = text.substr(at);
    if (!rest.starts_with("http://") && !rest.starts_with("https://")) continue;
    out.emplace_back(rest.substr(0, rest.find_first_of(" \t\"',|\\]")));
  }
}

std::string text_below(const fs::path& root, std::string_view path) {
  return read_file(root / fs::path(path).relative_path(), kFileLimit).value_or("");
}

void ask(const std::string& tool, std::vector<std::string> argv, std::vector<PackageSource>& out) {
  tmpl::Command command;
  command.argv = std::move(argv);
  command.time_limit = kToolLimit;
  std::vector<std::string> urls;
  command.on_line = [&](const std::string& line) { collect_urls(line, urls); };
  if (!tmpl::run_command(command)) return;  // a tool that is not there has no server
  for (std::string& url : urls) out.push_back({tool, std::move(url)});
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::vector<std::string> apt_urls(std::string_view text) {
  std::vector<std::string> out;
  bool enabled = true;  // of a deb822 stanza
  std::vector<std::string> stanza;
  const auto flush = [&] {
    if (enabled) out.insert(out.end(), stanza.begin(), stanza.end());
    stanza.clear();
    enabled = true;
  };
  each_line(text, [&](std::string_view line) {
    if (line.empty()) return flush();
    if (line.front() == '#') return;
    if (line.starts_with("deb ") || line.starts_with("deb-src ")) return collect_urls(line, out);
    if (line.starts_with("URIs:") || line.starts_with("http")) collect_urls(line, stanza);
    if (line.starts_with("Enabled:") && trim(line.substr(8)) == "no") enabled = false;
  });
  flush();
  return out;
}

std::vector<std::string> urls_of_settings(std::string_view text, const std::vector<std::string_view>& names) {
  std::vector<std::string> out;
  bool follows = false;  // INI values go on in indented lines
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view raw = rest.substr(0, end), line = trim(raw);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (follows && !raw.empty() && (raw.front() == ' ' || raw.front() == '\t')) {
      collect_urls(line, out);
      continue;
    }
    const std::size_t equals = line.find('=');
    const std::string_view name = trim(line.substr(0, equals));
    follows = equals != line.npos && std::any_of(names.begin(), names.end(), [&](std::string_view n) {
                return name == n || name.ends_with(std::string(":") + std::string(n));
              });
    if (follows) collect_urls(line.substr(equals), out);
  }
  return out;
}

std::vector<PackageSource> machine_sources(const fs::path& root, const fs::path& home, bool ask_tools) {
  std::vector<PackageSource> out;
  const auto add = [&](const char* tool, std::vector<std::string> urls) {
    for (std::string& url : urls) out.push_back({tool, std::move(url)});
  };
  add("apt", apt_urls(text_below(root, "/etc/apt/sources.list")));
  if (const auto files = list_directory(root / "etc/apt/sources.list.d"))
    for (const std::string& file : *files)
      if (file.ends_with(".list") || file.ends_with(".sources")) add("apt", apt_urls(text_below(root, "/etc/apt/sources.list.d/" + file)));
  const std::string at_home = home.string();
  for (const std::string& file : {std::string("/etc/pip.conf"), at_home + "/.pip/pip.conf", at_home + "/.config/pip/pip.conf"})
    add("pip", urls_of_settings(text_below(root, file), {"index-url", "extra-index-url", "find-links"}));
  for (const std::string& file : {std::string("/etc/npmrc"), at_home + "/.npmrc"})
    add("npm", urls_of_settings(text_below(root, file), {"registry"}));
  for (const std::string& file : {at_home + "/.cargo/config.toml", at_home + "/.cargo/config"}) {
    std::vector<std::string> urls = urls_of_settings(text_below(root, file), {"registry", "index"});
    for (std::string& url : urls)
      if (const auto start = url.find("sparse+"); start == 0) url.erase(0, 7);
    add("cargo", std::move(urls));
  }
  add("go", urls_of_settings(text_below(root, at_home + "/.config/go/env"), {"GOPROXY", "GOSUMDB"}));
  if (!ask_tools) return out;
  for (const auto& [tool, name] :
       {std::pair{"pip", "PIP_INDEX_URL"}, std::pair{"pip", "PIP_EXTRA_INDEX_URL"}, std::pair{"npm", "npm_config_registry"},
        std::pair{"cargo", "CARGO_REGISTRIES_CRATES_IO_INDEX"}, std::pair{"go", "GOPROXY"}}) {
    std::vector<std::string> urls;
    collect_urls(environment(name), urls);
    add(tool, std::move(urls));
  }
  // What a tool uses when nothing is set is known to it alone.
  ask("pip", {"python3", "-c", "from pip._internal.models.index import PyPI as p; print(p.simple_url, 'https://' + p.file_storage_domain)"},
      out);
  ask("npm", {"npm", "config", "get", "registry"}, out);
  ask("go", {"go", "env", "GOPROXY"}, out);
  return out;
}

json::object sources_policy(const std::vector<PackageSource>& sources) {
  json::array rules;
  std::set<std::string> seen;
  std::map<std::string, int> numbers;
  for (const PackageSource& source : sources) {
    const auto url = boost::urls::parse_uri(source.url);
    if (!url || url->host_type() != boost::urls::host_type::name || url->encoded_host().empty()) continue;
    const bool plain = url->scheme() == "http";
    const std::string host(url->encoded_host());
    const int port = url->has_port() && url->port_number() != 0 ? url->port_number() : plain ? 80 : 443;
    if (!seen.insert(fmt::format("{} {} {}", source.tool, host, port)).second) continue;
    const std::string id = fmt::format("{}-{}", source.tool, ++numbers[source.tool]);
    rules.push_back(json::object{{"id", id},
                                 {"name", host},
                                 {"protocol", plain ? "http" : "https"},
                                 {"ports", json::array{port}},
                                 {"methods", json::array{"GET", "HEAD"}}});
  }
  return {{"mode", "allowlist"}, {"rules", std::move(rules)}};
}

}  // namespace space::cli
