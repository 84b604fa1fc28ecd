#include <cstdlib>
#include <fmt/format.h>

#include "base/file.h"
#include "cli/commands.h"

namespace space::cli {
namespace {

void print(Console& console, const json::object& variables) {
  if (console.as_json()) return console.value(variables);
  for (const auto& item : variables)
    console.line(fmt::format("export {}={}", std::string_view(item.key()), printable(std::string(item.value().as_string()))));
}

}  // namespace

// Every call makes a key of its own, so that one can be revoked without the others; a key that the environment has stays.
Task<int> e2b_env(Context& context, E2bOptions options) {
  const char* present = std::getenv("E2B_API_KEY");
  std::string key = present && std::string_view(present).starts_with("e2b_") ? present : "";
  if (key.empty()) {
    json::object body{{"name", options.name}, {"form", "e2b"}};
    if (options.templates) body["scopes"] = json::array{"run", "publish"};
    CO_TRY(const json::object made, co_await context.api.send("POST", "/v1/keys", std::move(body)));
    key = text_of(made, "key");
  }
  const std::string& url = context.api.connection().url;
  json::object variables{
      {"E2B_API_KEY", key}, {"E2B_API_URL", url}, {"E2B_VOLUME_API_URL", url}};  // the SDKs take no volume's address from the second
  // A server of this machine says on which names it serves; without them, headers lead into sandboxes.
  const auto domain = read_file(options.run_dir / "api" / "domain", 4096);
  if (domain) {
    const std::size_t line = domain->find('\n');
    variables["E2B_DOMAIN"] = domain->substr(0, line);
    const std::string authority = line == std::string::npos ? "" : domain->substr(line + 1, domain->find('\n', line + 1) - line - 1);
    for (const char* variable : {"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"})
      if (!authority.empty()) variables[variable] = authority;
  } else {
    variables["E2B_SANDBOX_URL"] = url;
  }
  print(context.console, variables);
  co_return 0;
}

}  // namespace space::cli
