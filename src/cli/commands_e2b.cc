#include <cstdlib>
#include <fmt/format.h>

#include "cli/commands.h"

namespace space::cli {
namespace {

void print(Console& console, const json::object& variables) {
  if (console.as_json()) return console.value(variables);
  for (const auto& item : variables) console.line(fmt::format("export {}={}", std::string_view(item.key()), printable(std::string(item.value().as_string()))));
}

}  // namespace

// Every call makes a key of its own, so that one can be revoked without the others; a key that the environment has stays.
Task<int> e2b_env(Context& context, std::string name) {
  const char* present = std::getenv("E2B_API_KEY");
  std::string key = present && std::string_view(present).starts_with("e2b_") ? present : "";
  if (key.empty()) {
    json::object body{{"name", name}, {"form", "e2b"}};
    CO_TRY(const json::object made, co_await context.api.send("POST", "/v1/keys", std::move(body)));
    key = text_of(made, "key");
  }
  const std::string& url = context.api.connection().url;
  const json::object variables{{"E2B_API_KEY", key}, {"E2B_API_URL", url}, {"E2B_SANDBOX_URL", url}};
  print(context.console, variables);
  co_return 0;
}

}  // namespace space::cli
